"""ZeRO through deepspeed.initialize on gloo; `--stage` as in its configuration."""

import argparse

import deepspeed
import torch
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
parser.add_argument("--stage", type=int, default=1)
parser.add_argument("--steps", type=int, default=14)
args = parser.parse_args()

deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 50))
config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    "zero_optimization": {"stage": args.stage},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 10**6,
}
engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
data = torch.randint(0, 50, (16 * args.steps, 8), generator=torch.Generator().manual_seed(3))
for batch in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)):
    loss = torch.nn.functional.cross_entropy(engine(batch).flatten(0, 1).float(), batch.flatten())
    engine.backward(loss)
    engine.step()
    if engine.global_rank == 0:
        print("loss", loss.item().hex(), flush=True)
if engine.global_rank == 0:
    print("end of the job")
