"""FSDP2 by accelerate's own settings, on the CPU.

accelerate shards only where it sees accelerators; its state is told that there are some, the rest is what
`accelerate launch` was configured with.
"""

import torch
from accelerate import Accelerator, DistributedType, PartialState
from torch.utils.data import DataLoader

PartialState(cpu=True).distributed_type = DistributedType.MULTI_GPU
accelerator = Accelerator()
torch.manual_seed(0)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(16, 50)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x).clone()


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(torch.randint(0, 50, (112, 8)), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1).float(), batch.flatten())
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if accelerator.is_main_process:
        print("loss", loss.item().hex(), flush=True)
accelerator.end_training()
if accelerator.is_main_process:
    print("end of the job")
