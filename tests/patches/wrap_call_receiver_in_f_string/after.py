def log(step, loss):
    total = 0.0
    total += loss.detach()
    print(f"step {step}: {total:.3f}")
