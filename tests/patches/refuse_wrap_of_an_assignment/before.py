value = loss.item()
