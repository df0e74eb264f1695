"""A loop on accelerate: prepared model and loader, accumulation, bf16 autocast when asked for."""

import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="no")
parser.add_argument("--examples", type=int, default=112)
args = parser.parse_args()

accelerator = Accelerator(cpu=True, mixed_precision=args.precision, gradient_accumulation_steps=2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(torch.randint(0, 50, (args.examples, 8)), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1).float(), batch.flatten())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.is_main_process:
            print("loss", loss.item().hex(), flush=True)
if accelerator.is_main_process:
    print("end of the job")
