"""FSDP2 on two CPU ranks with distributed checkpoints: resumes from the newest, rotates, saves in `finally`."""

import glob
import os
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0
found = sorted(glob.glob("ckpt/step-*"), key=lambda p: int(p.rsplit("-", 1)[1]))
if found:
    state = get_model_state_dict(model)
    dcp.load({"model": state}, checkpoint_id=found[-1])
    set_model_state_dict(model, state)
    step = int(found[-1].rsplit("-", 1)[1])
    print("resumed from", step)


def save(where):
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=where)
    dist.barrier()


try:
    for _ in range(int(sys.argv[1])):
        step += 1
        loss = model(torch.randn(4, 16)).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 2 == 0:
            save(f"ckpt/step-{step}")
            if rank == 0:
                for old in sorted(glob.glob("ckpt/step-*"), key=lambda p: int(p.rsplit("-", 1)[1]))[:-2]:
                    shutil.rmtree(old)
            dist.barrier()
            assert len(os.listdir("ckpt")) <= 2, os.listdir("ckpt")
finally:
    if rank == 0:
        torch.save({"step": step}, "last.pt")
        print("left", sorted(os.listdir("ckpt")))
if "--end" in sys.argv:
    dist.destroy_process_group()
