"""Data-parallel loops on gloo, started by torchrun or by torch.multiprocessing.spawn."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--style", required=True)
parser.add_argument("--spawn", action="store_true")
parser.add_argument("--steps", type=int, default=14)
parser.add_argument("--kill-after", type=int)
args = parser.parse_args()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(16, 50)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(rank, world):
    if args.spawn:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("PORT", "29511"))
        dist.init_process_group("gloo", rank=rank, world_size=world)
    else:
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model()
    if args.style == "ddp":
        model = DistributedDataParallel(model)
    elif args.style == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp import ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        model = FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            sharding_strategy=ShardingStrategy.FULL_SHARD,
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
    elif args.style == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh("cpu", (world,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.randint(0, 50, (8 * args.steps, 12), generator=torch.Generator().manual_seed(3))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    for step, batch in enumerate(loader):
        if step == args.kill_after:
            os.kill(os.getpid(), 9)
        loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1).float(), batch.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print("loss", loss.item().hex(), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print("end of the job")


if __name__ == "__main__":
    if args.spawn:
        torch.multiprocessing.spawn(train, args=(2,), nprocs=2)
    else:
        train(0, 1)
