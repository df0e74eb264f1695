def f(loss):
    return loss.item()
