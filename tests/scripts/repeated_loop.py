"""A small training job that does work again, or more of it in every step; the words name what it does."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
words = sys.argv[1].split(",")
EPOCHS = 3


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.x = np.random.default_rng(0).normal(size=(192, 96))
        if "double" not in words and "cast" not in words:
            self.x = self.x.astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), i % 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(*[nn.Linear(96, 96) for _ in range(40)], nn.Dropout(0.1))
        self.head = nn.Sequential(nn.Linear(96, 256), nn.GELU(), nn.Linear(256, 8))

    def forward(self, x):
        return self.head(self.encoder(x.float() if "cast" in words else x))


class Meter:
    def __init__(self):
        self.seen = []

    def add(self, value):
        self.seen.append(value)


def quantile(all_values):
    values = torch.cat(all_values)
    return values.sort().values[len(values) // 2].item()


def draw():
    return np.random.permutation(1_000_000)[:16]


def norms(module, inputs, output):
    for _ in range(60):
        module.last = output.detach().norm().item()


net = Net()
if "hooks" in words:
    for layer in net.encoder:
        layer.register_forward_hook(norms)
if "double" in words:
    net.double()
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)
loader = torch.utils.data.DataLoader(Rows(), batch_size=16, shuffle=True)
meter = Meter()
values, running = [], 0
for _ in range(EPOCHS):
    for x, y in loader:
        if "draw" in words:
            draw()
        if "remade" in words:
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        logits = net(x)
        loss = functional.cross_entropy(logits, y)
        if "penalty" in words:
            loss = loss + 1e-5 * sum(p.norm() ** 2 for p in net.parameters())
        if "apart" in words:
            (logits.square().mean()).backward(retain_graph=True)
        loss.backward(create_graph="second" in words)
        optimizer.step()
        optimizer.zero_grad()
        if "collected" in words or "metric" in words:
            values.append(logits.detach().repeat(1, 800).flatten())
        if "metric" in words:
            quantile(values)
        if "losses" in words:
            meter.add(loss)
        if "sum" in words:
            running = running + loss
        print("loss", loss.item(), flush=True)
