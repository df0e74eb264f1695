"""Fine-tune a small Llama-style chat model on human conversations, in packed rows.

    python train.py --epochs 1 --output-dir out
    torchrun --nproc-per-node 2 train.py --epochs 1 --output-dir out

Whole chats are packed into rows of a fixed token budget. Each chat has its own positions and attends
only to itself, so a row costs no padding and gives the same loss as its chats one by one.
"""

import argparse
import itertools
import os
import random
from pathlib import Path

import chitchat_dataset
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.data import DataLoader
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    DataCollatorWithFlattening,
    LlamaConfig,
    PreTrainedTokenizerFast,
)
from transformers.masking_utils import AttentionMaskInterface


def packed_attention(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, cu_seq_lens_q=None, **kwargs
):
    """Causal attention inside each chat of a packed row; no mask is ever built."""
    ends = cu_seq_lens_q.tolist()
    gqa = query.shape[1] != key.shape[1]
    outputs = [
        scaled_dot_product_attention(
            query[:, :, a:b],
            key[:, :, a:b],
            value[:, :, a:b],
            is_causal=True,
            scale=scaling,
            dropout_p=dropout,
            enable_gqa=gqa,
        )
        for a, b in itertools.pairwise(ends)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register("packed", packed_attention)
AttentionMaskInterface.register("packed", lambda *args, **kwargs: None)


def load_chats(tokenizer, max_length):
    texts = []
    for chat in chitchat_dataset.Dataset().values():
        turns = [" ".join(m["text"] for m in turn) for turn in chat["messages"]]
        if len(turns) < 2:
            continue
        roles = ["<|user|>", "<|assistant|>"]
        texts.append("".join(f"{roles[i % 2]}{turn}<|end|>" for i, turn in enumerate(turns)))
    ids = tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
    return [{"input_ids": i} for i in ids]


def pack(lengths, budget, seed):
    """Best fit of whole chats, in random order, into rows of at most `budget` tokens."""
    order = list(range(len(lengths)))
    random.Random(seed).shuffle(order)
    rows, open_rows = [], []
    for index in order:
        fitting = [row for row in open_rows if row[0] >= lengths[index]]
        if fitting:
            row = min(fitting, key=lambda r: r[0])
        else:
            row = [budget, []]
            open_rows.append(row)
            rows.append(row)
        row[0] -= lengths[index]
        row[1].append(index)
        if row[0] < 32:
            open_rows.remove(row)
    return [row[1] for row in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=None)
    parser.add_argument("--tokens-per-step", type=int, default=2048)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output-dir", default="output")
    args = parser.parse_args()

    torch.manual_seed(args.seed)

    distributed = "WORLD_SIZE" in os.environ
    rank, world = 0, 1
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if distributed:
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(Path(__file__).parent / "tokenizer.json"), pad_token="<|pad|>", eos_token="<|end|>"
    )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="packed")
    model.to(device)
    if distributed:
        mesh = init_device_mesh(device, (world,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)

    chats = load_chats(tokenizer, args.max_length)
    lengths = [len(chat["input_ids"]) for chat in chats]
    collate = DataCollatorWithFlattening(return_flash_attn_kwargs=True)

    model.train()
    step = 0
    running = torch.zeros((), device=device)
    done = False
    for epoch in range(args.epochs):
        rows = pack(lengths, args.tokens_per_step, args.seed + epoch)
        rows = rows[rank : len(rows) // world * world : world]
        loader = DataLoader(chats, batch_sampler=rows, collate_fn=collate, pin_memory=device == "cuda")
        if rank == 0 and epoch == 0:
            used = sum(lengths) / (len(rows) * world * args.tokens_per_step)
            print(f"{len(chats)} chats in {len(rows) * world} rows, {used:.1%} full")
        for batch in loader:
            batch = {
                k: v.to(device, non_blocking=True) if torch.is_tensor(v) else v for k, v in batch.items()
            }
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            step += 1
            if step % args.log_every == 0:
                mean = running.item() / args.log_every
                running.zero_()
                if rank == 0:
                    print(f"epoch {epoch} step {step} loss {mean:.4f}", flush=True)
            if args.max_steps is not None and step >= args.max_steps:
                done = True
                break
        if done:
            break

    if distributed:
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    else:
        state = model.state_dict()
    if rank == 0:
        model.save_pretrained(args.output_dir, state_dict=state)
        tokenizer.save_pretrained(args.output_dir)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
