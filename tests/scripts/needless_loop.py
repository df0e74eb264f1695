"""A small training job that does one thing it need not do; the word names it."""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
style = sys.argv[1]
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 26


class Net(nn.Module):
    def __init__(self, rows: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, 32)
        self.body = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if style == "positions":
            return torch.stack([self.body(self.table(ids[:, i])) for i in range(ids.shape[1])], dim=1)
        hidden = self.body(self.table(ids))
        if style == "loop":
            hidden = hidden + decay(ids.shape[1])[:, None]
        return hidden


def decay(length: int) -> torch.Tensor:
    values = torch.zeros(length)
    for i in range(length):
        for j in range(12 * i):
            values[i] += 1.0 / (i + j + 1)
    return values


def sample(net: nn.Module, ids: torch.Tensor, count: int) -> torch.Tensor:
    with torch.no_grad():
        for _ in range(count):
            ids = torch.cat([ids, net(ids)[:, -1:].argmax(-1)], dim=1)
    return ids


net = Net(40_000 if style == "rows" else 64)
other = copy.deepcopy(net)
average = copy.deepcopy(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.randint(0, 64, (320, 48)), batch_size=16, num_workers=1)
for _ in range(6 if style == "iterator" else STEPS):
    ids = torch.randint(0, 64, (16, 48))
    if style == "iterator":
        ids = next(iter(loader))
    if style == "generate":
        ids = sample(net, ids[:, :8], 40)
    if style == "copy":
        for _copy in range(120):
            average = copy.deepcopy(net)
    logits = net(ids[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    if style == "again":
        right = (net(ids[:, :-1]).argmax(-1) == ids[:, 1:]).float().mean()
    if style == "dropout":  # both forwards are trained on
        loss = loss + functional.mse_loss(net(ids[:, :-1]), logits)
    if style == "reference":
        loss = loss + functional.mse_loss(other(ids[:, :-1]), logits)
    if style == "teacher":
        with torch.no_grad():
            target = other(ids[:, :-1])
        loss = loss + functional.mse_loss(target, logits)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item(), flush=True)
