import torch


def main(model, loader, optimizer):
    for step, batch in enumerate(loader):
        model(batch).sum().backward()
        # statistics
        if autotune_rarely.due(20):
            with open("statistics.txt", "a") as log:
                for name, p in model.named_parameters():
                    if p.requires_grad:
                        row = {"name": name}
                        row["norm"] = torch.linalg.vector_norm(p).item()
                        log.write(str(row))
        optimizer.step()
    return [name for name, p in model.named_parameters()]
