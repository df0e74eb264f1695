def main(model, loader, optimizer):
    for step, batch in enumerate(loader):
        model(batch).sum().backward()
        optimizer.step()
        if step % 2 == 0:
            print(step)
            if autotune_rarely.due(20):
                torch.save(model.state_dict(), "last.pt")
