def main(model, loader, optimizer, losses):
    for step, batch in enumerate(loader):
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if losses[-1] > 100:
            break
