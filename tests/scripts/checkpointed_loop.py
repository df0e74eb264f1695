"""Activation checkpointing in the ways people write it, over micro-batches of padded rows."""

import argparse
import os

import torch
from torch.utils.checkpoint import checkpoint

WIDTH, BLOCKS = 96, 6
POINTWISE = 0  # more activations to keep, with little to compute


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x_inner = torch.nn.functional.gelu(self.up(self.norm(x)))
        for _ in range(POINTWISE):
            x_inner = torch.tanh(x_inner)
        return x + self.down(x_inner)


class Model(torch.nn.Module):
    def __init__(self, style):
        super().__init__()
        self.style = style
        self.embedding = torch.nn.Embedding(128, WIDTH)
        self.layers = torch.nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = torch.nn.Linear(WIDTH, 128, bias=False)

    def forward(self, input_ids, labels):
        x = self.embedding(input_ids)
        for layer in self.layers:
            if self.style == "function" and self.training:
                x = checkpoint(layer, x, use_reentrant=False)
            elif self.style == "reentrant" and self.training:
                x = checkpoint(layer, x, use_reentrant=True)
            else:
                x = layer(x)
        logits = self.head(x).flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=-100)


class Examples(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, number):
        length = 24 + 8 * (number * 7 % 5)
        return {"input_ids": [(number * 31 + i * 7) % 127 + 1 for i in range(length)]}


def pad(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows])
    return {"input_ids": ids, "labels": torch.where(ids == 0, -100, ids)}


def transformers_model():
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=128, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=BLOCKS,
        num_attention_heads=4, num_key_value_heads=4,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    model.gradient_checkpointing_enable()
    return model


def sharded(model):
    import torch.distributed as dist
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    from torch.distributed.fsdp import fully_shard

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    apply_activation_checkpointing(model, check_fn=lambda part: isinstance(part, Block))
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--style", default="function")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--pointwise", type=int, default=0)
    args = parser.parse_args()
    global POINTWISE
    POINTWISE = args.pointwise
    torch.manual_seed(0)
    model = transformers_model() if args.style == "transformers" else Model(args.style)
    if args.style == "wrapper":
        model = sharded(model)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Examples(), batch_size=args.batch_size, collate_fn=pad)
    for number, batch in enumerate(loader, 1):
        out = model(**batch)
        loss = (out if torch.is_tensor(out) else out.loss) / args.accumulation
        loss.backward()
        print("loss", f"{loss.item():.9f}", flush=True)
        if number % args.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
