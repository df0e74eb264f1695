"""DDP in which every rank's loader gives the same batches; each rank takes all of a batch, or its part of it."""

import sys

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(192, 32), torch.randint(0, 4, (192,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model = DistributedDataParallel(torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in loader:
    if sys.argv[1] == "part":
        x, y = x[rank::world], y[rank::world]
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item(), flush=True)
distributed.destroy_process_group()
