def log(step, loss):
    total = 0.0
    total += loss.item()
    print(f"step {step}: {total:.3f}")
