for step, batch in enumerate(loader):
    if step % 10 == 0:
        print(f"{loss.item():.4f}")
