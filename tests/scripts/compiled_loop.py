"""A model compiled without graph breaks, in every way torch offers."""

import argparse

import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--how", required=True)
args = parser.parse_args()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.linear(x)).to(torch.float32)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(16, 50)

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


torch.manual_seed(0)
model = Model()
options = {"fullgraph": True, "backend": "aot_eager"}
run = model
if args.how == "wrapper":
    run = torch.compile(model, **options)
elif args.how == "in-place":
    model.compile(**options)
elif args.how == "blocks":
    for block in model.blocks:
        block.compile(**options)
elif args.how == "function":

    @torch.compile(**options)
    def run(ids, labels):
        return model(ids, labels=labels)


optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for batch in DataLoader(torch.randint(0, 50, (64, 8)), batch_size=4):
    loss = run(batch, labels=batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item().hex())
print("breaks", sum(torch._dynamo.utils.counters["graph_break"].values()))
print("end of the job")
