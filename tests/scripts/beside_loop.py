"""A small language model behind a tower; what is wrong with the loop is an argument.

tower: the tower is only left out of the optimizer; statistics: values of weights are read in every step;
prints: much is printed; anomaly: anomaly detection around forward and backward; head: the output layer works
on positions without a label; packed: rows of several documents, told by their labels alone.
"""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("faults", nargs="*")
parser.add_argument("--low-memory", action="store_true")
args = parser.parse_args()
VOCABULARY, WIDTH, LENGTH, ROWS = 1024, 32, 24, 4


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)])
        if "tower" not in args.faults:
            self.tower.requires_grad_(False)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.body = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input_ids, labels):
        hidden = self.embedding(input_ids)
        hidden = hidden + self.tower(torch.ones(WIDTH))
        if args.low_memory:
            hidden = checkpoint(self.body, hidden, use_reentrant=False)
        else:
            hidden = self.body(hidden)
        hidden, targets = hidden[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        if "head" not in args.faults:
            kept = targets != -100
            hidden, targets = hidden[kept], targets[kept]
        return nn.functional.cross_entropy(self.head(hidden), targets)


def collate(rows):
    ids = torch.stack(rows)
    labels = ids.clone()
    if "packed" in args.faults:
        labels[:, ::8] = -100  # three documents in a row
    else:
        labels[:, : LENGTH * 3 // 4] = -100
    return {"input_ids": ids, "labels": labels}


torch.manual_seed(0)
model = Captioner()
trained = [p for name, p in model.named_parameters() if not name.startswith("tower")]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
data = torch.randint(3, VOCABULARY, (200, LENGTH))
for batch in DataLoader(data, batch_size=ROWS, collate_fn=collate):
    with torch.autograd.set_detect_anomaly("anomaly" in args.faults):
        loss = model(**batch)
        loss.backward()
    if "statistics" in args.faults:
        text = [f"{p.detach().std().item()} {p.detach().histc(64).tolist()}" for p in trained]
    if "prints" in args.faults:
        for _ in range(600):
            print("x" * 200, flush=True)
    optimizer.step()
    optimizer.zero_grad()
