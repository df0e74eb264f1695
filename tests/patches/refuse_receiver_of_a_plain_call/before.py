value = float(loss)
