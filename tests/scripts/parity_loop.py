"""A tiny causal language model trained on rows of unequal length: padded, packed, or packed wrongly."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--layout", default="padded")  # padded | left | packed | mask (a leak) | cache (a leak)
p.add_argument("--micro", type=int, default=4)
p.add_argument("--steps", type=int, default=3)
p.add_argument("--loss", default="model")  # model | outside | shifted
p.add_argument("--wrap", default="none")  # none | fsdp2 | ddp | compile
p.add_argument("--dropout", type=float, default=0.0)
p.add_argument("--clip", action="store_true")
p.add_argument("--by-hand", action="store_true")  # no DataLoader
a = p.parse_args()

BATCH = 4
if "RANK" in os.environ:
    dist.init_process_group("gloo")
rank = dist.get_rank() if dist.is_initialized() else 0
world = dist.get_world_size() if dist.is_initialized() else 1
draw = torch.Generator().manual_seed(7)
rows = [torch.randint(3, 60, (int(n),), generator=draw) for n in torch.randint(5, 20, (64,), generator=draw)]


def collate(items):
    n = max(len(i) for i in items)
    if a.layout in ("padded", "left"):
        ids, labels = torch.zeros(len(items), n, dtype=torch.long), torch.full((len(items), n), -100)
        mask = torch.zeros_like(ids)
        for row, item in enumerate(items):
            place = slice(0, len(item)) if a.layout == "padded" else slice(n - len(item), n)
            ids[row, place], labels[row, place], mask[row, place] = item, item, 1
            labels[row, place.start] = -100
        batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
        if a.layout == "left":
            batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    else:
        ids, labels = torch.cat(items)[None], torch.cat([torch.cat([torch.tensor([-100]), i[1:]]) for i in items])[None]
        batch = {"input_ids": ids, "labels": labels, "position_ids": torch.cat([torch.arange(len(i)) for i in items])[None]}
        if a.layout == "mask":
            batch["attention_mask"] = torch.ones_like(ids)
        batch["use_cache"] = a.layout == "cache"
    if a.loss == "shifted":
        batch["targets"] = torch.cat([batch.pop("labels")[:, 1:], torch.full((ids.shape[0], 1), -100)], 1)
    return batch


config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, attention_dropout=a.dropout,
)
model = LlamaForCausalLM(config)
model.train()
called = model
if a.wrap == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
if a.wrap == "ddp":
    called = torch.nn.parallel.DistributedDataParallel(model)
if a.wrap == "compile":
    called = torch.compile(model, backend="eager")
optimizer = torch.optim.AdamW(called.parameters(), lr=1e-3)
own = [r for n, r in enumerate(rows) if n % world == rank]
loader = DataLoader(own, batch_size=a.micro, collate_fn=collate)
if a.by_hand:
    loader = (collate(own[n : n + a.micro]) for n in range(0, len(own), a.micro))
accumulate = BATCH // a.micro
for number, batch in enumerate(loader):
    if number >= a.steps * accumulate + 1:
        break
    targets = batch.pop("targets", None)
    labels = batch.pop("labels") if a.loss == "outside" else batch.get("labels")
    output = called(**batch)
    if a.loss == "model":
        loss = output.loss
    else:
        logits = output.logits if targets is not None else output.logits[:, :-1]
        wanted = targets if targets is not None else labels[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 64), wanted.reshape(-1), ignore_index=-100)
    (loss / accumulate).backward()
    if (number + 1) % accumulate == 0:
        if a.clip:
            torch.nn.utils.clip_grad_norm_(called.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
