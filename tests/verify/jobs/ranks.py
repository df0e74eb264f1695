"""A small model on several ranks, by DDP or FSDP2, with two micro-batches a step; planted faults by flag."""

from __future__ import annotations

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

flags = argparse.ArgumentParser()
flags.add_argument("--shard", choices=["ddp", "fsdp2"], default="ddp")
flags.add_argument(
    "--plant",
    choices=["none", "twin", "no-sync", "halved", "ignored", "local-norm", "skips-updates", "compiled"],
    default="none",
)
args = flags.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

model = nn.Sequential(
    nn.Embedding(40, 24), nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24), nn.Linear(24, 40)
)
if args.shard == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (world,))
    for part in (model[1], model[3]):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=args.plant != "twin")
    wrapped = model
else:
    if args.plant == "ignored":
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["3.bias"])
    wrapped = nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=args.plant == "twin", bucket_cap_mb=1 if args.plant == "twin" else 25
    )
    if args.plant == "halved":  # divides what DDP has divided already

        def twice(state, bucket):
            work = dist.all_reduce(bucket.buffer().div_(world), async_op=True).get_future()
            return work.then(lambda done: done.value()[0].div_(world))

        wrapped.register_comm_hook(None, twice)


raw = wrapped
if args.plant == "compiled":
    if args.shard == "ddp":
        wrapped = torch.compile(wrapped, backend="aot_eager")
    for part in (model[1], model[3]) if args.shard == "fsdp2" else ():
        part.compile(backend="aot_eager")


def clip():
    parameters = list(model.parameters())
    if args.plant == "local-norm":  # each rank clips by the norm of its own shards
        parts = []
        for parameter in parameters:
            part = nn.Parameter(parameter.to_local().detach(), requires_grad=True)
            part.grad = parameter.grad.to_local()
            parts.append(part)
        return nn.utils.clip_grad_norm_(parts, 0.5)
    return nn.utils.clip_grad_norm_(parameters, 0.5)


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(5)
rows = torch.randint(0, 40, (400, 12), generator=generator)[rank::world]
for number, batch in enumerate(DataLoader(rows, batch_size=4, drop_last=True)):
    last = number % 2 == 1
    skip = args.plant == "no-sync" and args.shard == "ddp" and last
    with raw.no_sync() if skip or (args.shard == "ddp" and not last) else contextlib.nullcontext():
        logits = wrapped(batch)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten()) / 2
        loss.backward()
    if not last:
        continue
    clip()
    if not (args.plant == "skips-updates" and rank == 1 and number % 6 == 5):
        optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
