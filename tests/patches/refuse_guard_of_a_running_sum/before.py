for step, batch in enumerate(loader):
    total += loss.item()
