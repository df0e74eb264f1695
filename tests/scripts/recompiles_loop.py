"""A compiled loss that breaks its graph and is compiled again for every length; a loader that tokenises; a
compiled function that calls one which breaks the graph and reads a list that grows."""

import time

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((5 + index // 4,), index)


def collate(rows):
    time.sleep(0.004)
    return torch.stack(rows)


@torch.compile(backend="eager", dynamic=False)
def loss_of(ids):
    if ids.sum() < 0:
        return ids.float().sum()
    return torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


seen = []


def note(values):
    seen.append(values.mean().item())
    return values


@torch.compile(backend="eager")
def noted(values):
    return note(values) + 1


for epoch in range(2):
    for batch in DataLoader(Rows(), batch_size=2, collate_fn=collate):
        loss_of(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
for _ in range(10):
    noted(torch.ones(2))
print("end of the job")
