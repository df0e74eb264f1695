def main(model, loader, optimizer, best):
    for step, batch in enumerate(loader):
        model(batch).sum().backward()
        optimizer.step()
        with torch.no_grad():
            score = evaluate(model)
        if score > best:
            best = score
