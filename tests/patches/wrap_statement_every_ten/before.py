def main():
    for step, batch in enumerate(loader):
        loss = train(batch)
        # progress
        print(
            f"step {step} loss {loss.item():.4f}"
        )
