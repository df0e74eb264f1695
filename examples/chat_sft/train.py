"""Fine-tune a small Llama-style chat model on human conversations.

python train.py --epochs 1 --output-dir out
torchrun --nproc-per-node 2 train.py --epochs 1 --output-dir out
"""

import argparse
import os
import random
import time
from pathlib import Path

import chitchat_dataset
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast


class ChatDataset(Dataset):
    def __init__(self, tokenizer, max_length):
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.texts = []
        for chat in chitchat_dataset.Dataset().values():
            turns = [" ".join(m["text"] for m in turn) for turn in chat["messages"]]
            if len(turns) < 2:
                continue
            roles = ["<|user|>", "<|assistant|>"]
            self.texts.append("".join(f"{roles[i % 2]}{turn}<|end|>" for i, turn in enumerate(turns)))

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        ids = self.tokenizer(self.texts[index], truncation=True, max_length=self.max_length)["input_ids"]
        return torch.tensor(ids)


def collate(examples):
    longest = max(len(ids) for ids in examples)
    input_ids = torch.zeros(len(examples), longest, dtype=torch.long)
    attention_mask = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full((len(examples), longest), -100)
    for row, ids in enumerate(examples):
        input_ids[row, : len(ids)] = ids
        attention_mask[row, : len(ids)] = 1
        labels[row, : len(ids)] = ids
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=None)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output-dir", default="output")
    args = parser.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)

    distributed = "WORLD_SIZE" in os.environ
    rank = 0
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if distributed:
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
        rank = dist.get_rank()
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
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.to(device)
    if distributed:
        mesh = init_device_mesh(device, (dist.get_world_size(),))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    dataset = ChatDataset(tokenizer, args.max_length)
    sampler = DistributedSampler(dataset, seed=args.seed) if distributed else None
    loader = DataLoader(
        dataset, batch_size=args.batch_size, shuffle=sampler is None, sampler=sampler, collate_fn=collate
    )
    if rank == 0:
        print(f"{len(dataset)} chats, {sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters")

    model.train()
    step = 0
    for epoch in range(args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        total_loss = 0.0
        for i, batch in enumerate(loader):
            start = time.time()
            batch = {k: v.to(device) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            total_loss += loss.item()
            if rank == 0:
                print(
                    f"epoch {epoch} step {i + 1}/{len(loader)} loss {loss.item():.6f} "
                    f"average {total_loss / (i + 1):.4f} time {time.time() - start:.2f}s"
                )
            if args.max_steps is not None and step >= args.max_steps:
                break
        if args.max_steps is not None and step >= args.max_steps:
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
