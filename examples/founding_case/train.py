"""Fine-tune a Qwen3.5-architecture model on chat data with FSDP2.

    python prepare.py
    torchrun --nproc-per-node 1 train.py
    torchrun --nproc-per-node 2 train.py --size 27b --bf16-master --max-tokens 4096
    torchrun --nproc-per-node 8 train.py --size 27b --replicas 2         # HSDP: 2 replicas of 4 shards
    torchrun --nproc-per-node 2 train.py --size tiny --max-tokens 2048   # on a CPU

Weights are random: this job is about speed, not about the model that comes out.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, Qwen3_5TextConfig, get_cosine_schedule_with_warmup

SIZES = {
    "2.4b": {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "linear_num_value_heads": 16,
    },
    "27b": {
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 48,
    },
    "tiny": {
        "vocab_size": 2048,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
    },
}


class ChatRows(Dataset):
    def __init__(self, path, max_length, vocab_size):
        data = np.load(path)
        self.stream = data["stream"]
        self.vocabulary = data["vocabulary"]
        self.starts = data["starts"].astype(np.int64)
        self.lengths = np.minimum(data["lengths"], max_length).astype(np.int64)
        self.vocab_size = vocab_size

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        start = self.starts[index]
        row = self.stream[start : start + self.lengths[index]]
        # The tiny model has fewer tokens than Qwen's tokenizer.
        return torch.from_numpy(self.vocabulary[row].astype(np.int64) % self.vocab_size)


class TokenBudgetSampler:
    """Rows in order of arrival, as many as fit in `max_tokens` after padding to the longest of the batch."""

    def __init__(self, lengths, max_tokens, rank, world_size):
        batches, batch, longest = [], [], 0
        for index, length in enumerate(lengths.tolist()):
            longest = max(longest, length)
            if batch and longest * (len(batch) + 1) > max_tokens:
                batches.append(batch)
                batch, longest = [], length
            batch.append(index)
        batches.append(batch)
        self.batches = batches[rank : len(batches) // world_size * world_size : world_size]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


def collate(rows):
    longest = max(len(row) for row in rows)
    input_ids = torch.zeros(len(rows), longest, dtype=torch.long)
    attention_mask = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full((len(rows), longest), -100)
    for i, row in enumerate(rows):
        input_ids[i, : len(row)] = row
        attention_mask[i, : len(row)] = 1
        labels[i, : len(row)] = row
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=sorted(SIZES), default="2.4b")
    parser.add_argument("--data", default=str(Path(__file__).parent / "data" / "chat.npz"))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=None)
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--bf16-master", action="store_true", help="keep weights and AdamW states in bf16")
    parser.add_argument("--fused-adamw", action="store_true")
    parser.add_argument("--replicas", type=int, default=1, help="HSDP: replicas of the sharded model")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output-dir", default="output")
    parser.add_argument("--no-save", action="store_true")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)

    config = Qwen3_5TextConfig(**SIZES[args.size])
    master_dtype = torch.bfloat16 if args.bf16_master else torch.float32
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=master_dtype)
    parameters = sum(p.numel() for p in model.parameters())
    model.gradient_checkpointing_enable()

    if args.replicas > 1:
        shape = (args.replicas, world_size // args.replicas)
        mesh = init_device_mesh(device, shape, mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh(device, (world_size,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=master_dtype)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)

    dataset = ChatRows(args.data, min(8192, args.max_tokens), config.vocab_size)
    sampler = TokenBudgetSampler(dataset.lengths, args.max_tokens, rank, world_size)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
    total_steps = args.max_steps or args.epochs * len(loader)
    if args.fused_adamw:
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total_steps), total_steps)
    if rank == 0:
        print(f"{parameters / 1e9:.2f}B parameters, {len(dataset)} rows, {len(loader)} batches per rank")

    model.train()
    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            start = time.time()
            batch = {k: v.to(device) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            loss_value = loss.item()
            if rank == 0:
                seconds = time.time() - start
                tokens = int(batch["attention_mask"].sum())
                print(
                    f"epoch {epoch} step {step}/{total_steps} loss {loss_value:.4f} "
                    f"time {seconds:.2f}s tokens/s {tokens / seconds:.0f}",
                    flush=True,
                )
            if step == args.max_steps:
                break
        if step == args.max_steps:
            break

    if device == "cuda" and rank == 0:
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    if not args.no_save:
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if rank == 0:
            model.save_pretrained(args.output_dir, state_dict=state)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
