def main():
    for step, batch in enumerate(loader):
        loss = train(batch)
        # progress
        if step % 10 == 0:
            print(
                f"step {step} loss {loss.item():.4f}"
            )
