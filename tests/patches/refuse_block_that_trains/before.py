def main(model, loader, optimizer, scheduler):
    for step, batch in enumerate(loader):
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item())
