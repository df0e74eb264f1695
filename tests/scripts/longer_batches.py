"""A small training job whose batches, graphs and lists get longer from step to step, and that keeps nothing."""

from collections import deque

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
VOCAB = 64


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16)
        self.cell = nn.GRUCell(16, 16)
        self.head = nn.Linear(16, VOCAB)

    def forward(self, ids):
        state, states = ids.new_zeros(len(ids), 16, dtype=torch.float32), []
        for column in self.embed(ids).unbind(1):
            state = self.cell(column, state)
            states.append(state)
        return self.head(torch.stack(states, 1))


def batches():
    for step in range(60):
        ids = torch.randint(0, VOCAB, (4, 8 + step))
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def main():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    recent, newest, window = deque(maxlen=1000), [], []
    for step, batch in enumerate(batches()):
        logits = net(batch["input_ids"][:, :-1])
        logits = logits / 1.0
        rows = batch["input_ids"].tolist()
        words = []
        for row in rows:
            words.extend(row)
        parts = [functional.cross_entropy(logits[:, i], batch["input_ids"][:, i + 1]) for i in range(logits.shape[1])]
        loss = 0
        for one in parts:
            loss = loss + one / len(parts)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        recent.append(loss)
        newest.append(loss)
        newest = newest[-1000:]
        window.append(loss)
        if step % 50 == 49:
            window = []
        print("loss", loss.item(), flush=True)


main()
