"""Two optimizers that take turns without a loader: several updates of one, then several of the other."""

import torch

torch.manual_seed(0)
first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.SGD(second.parameters(), lr=0.1)]
for turn in range(4):
    for _ in range(6):
        loss = second(first(torch.ones(2, 4))).square().mean()
        loss.backward()
        optimizers[turn % 2].step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        print("loss", loss.item().hex())
print("end of the job")
