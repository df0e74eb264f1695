"""FSDP2 on two gloo ranks, one padded loader per rank."""
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM

import common


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(common.llama(), attn_implementation="eager")
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = common.make_examples()
    loader = DataLoader(data, batch_size=3, sampler=DistributedSampler(data, shuffle=False), collate_fn=common.pad)
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # one write per line: both ranks share the stream
        print(f"\nrank{dist.get_rank()} {loss.item():.9f} {len(batch['input_ids'])}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__" and "RANK" in os.environ:
    main()
