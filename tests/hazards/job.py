"""A small fine-tuning job in which one hazard at a time can be planted, or its harmless twin.

`job.py --rows padded|packed --plant NAME`. Plants are in plants.py: each changes one part of the job (data,
batches, model, loss, optimizer, logging). Without a plant this is the baseline.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))

VOCABULARY, WIDTH, PAD = 61, 32, 0


@dataclass
class Parts:
    """What a plant may replace before training starts."""

    examples: list[dict[str, list[int]]]
    batch_size: int = 4
    accumulate: int = 2
    collate: object = None
    loader_options: dict[str, object] = field(default_factory=dict)
    model: nn.Module | None = None
    optimizer: object = None
    loss: object = None  # logits, labels -> loss
    micro_loss: object = None  # loss, labels, labels of the whole step -> what backward is called on
    before_micro_batch: object = None  # model, micro-batch number, last of the step?
    after_backward: object = None
    clip: object = None  # model -> norm
    before_step: object = None  # step number, model, optimizer
    after_step: object = None
    log: object = None  # step, loss tensor
    split: object = None  # micro-batches of a step -> micro-batches


class Mixer(nn.Module):
    """A gated recurrence over time that starts anew where an example starts."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(WIDTH, WIDTH)
        self.gate = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden, starts):
        values, keep = torch.tanh(self.value(hidden)), torch.sigmoid(self.gate(hidden))
        carry = (~starts)[..., None].to(keep.dtype)
        state, out = torch.zeros_like(values[:, 0]), []
        for t in range(values.shape[1]):
            state = keep[:, t] * carry[:, t] * state + (1 - keep[:, t]) * values[:, t]
            out.append(state)
        return torch.stack(out, 1)


class Attention(nn.Module):
    """Two heads; `mask` is True where a query may look."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden, mask):
        rows, length, _ = hidden.shape
        q, k, v = (x.view(rows, length, 2, WIDTH // 2).transpose(1, 2) for x in self.qkv(hidden).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
        return self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.mixer, self.attention = Mixer(), Attention()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.0)

    def forward(self, hidden, mask, starts):
        hidden = hidden + self.mixer(self.norms[0](hidden), starts)
        hidden = hidden + self.dropout(self.attention(self.norms[1](hidden), mask))
        return hidden + self.down(F.silu(self.up(self.norms[2](hidden))))


class Output(dict):
    __getattr__ = dict.__getitem__


class TinyLM(nn.Module):
    """Recurrence and attention, tied head; `position_ids` and `cu_seq_lens_q` keep packed rows apart."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(512, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.2)
        self.token_loss = None

    def forward(
        self,
        input_ids,
        labels=None,
        attention_mask=None,
        position_ids=None,
        cu_seq_lens_q=None,
        cu_seq_lens_k=None,
    ):
        rows, length = input_ids.shape
        if position_ids is None:
            position_ids = torch.arange(length).expand(rows, length)
        starts = torch.zeros_like(input_ids, dtype=torch.bool)
        if cu_seq_lens_q is not None:
            starts[0, cu_seq_lens_q[:-1].long()] = True
        mask = torch.ones(length, length, dtype=torch.bool).tril().expand(rows, length, length)
        if attention_mask is not None:
            mask = mask & attention_mask.bool()[:, None, :]
            mask = mask | torch.eye(length, dtype=torch.bool)
        else:
            document = (position_ids == 0).cumsum(-1)
            mask = mask & (document[:, :, None] == document[:, None, :])
        hidden = self.embed(input_ids) + self.positions(position_ids)
        for block in self.blocks:
            hidden = block(hidden, mask, starts)
        logits = self.head(self.norm(hidden))
        loss = None if labels is None else (self.token_loss or mean_loss)(logits, labels)
        return Output(loss=loss, logits=logits)


def mean_loss(logits, labels):
    """Mean cross entropy of the next token over labels that count."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


def make_examples(count: int = 240) -> list[dict[str, list[int]]]:
    """Prompts and answers of long-tailed length; prompts are not trained on."""
    rng = random.Random(3)
    found = []
    for _ in range(count):
        length = min(60, 8 + int(rng.expovariate(1 / 12)))
        token, ids = rng.randrange(1, VOCABULARY), []
        for _ in range(length):
            ids.append(token)
            token = 1 + (token * 3 + rng.randrange(4)) % (VOCABULARY - 1)
        prompt = rng.randrange(2, 6)
        found.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    return found


def pad(batch):
    """Rows padded on the right to the longest."""
    longest = max(len(example["input_ids"]) for example in batch)

    def rows(name, fill):
        return torch.tensor([e[name] + [fill] * (longest - len(e[name])) for e in batch])

    mask = torch.tensor([[1] * len(e["input_ids"]) + [0] * (longest - len(e["input_ids"])) for e in batch])
    return {"input_ids": rows("input_ids", PAD), "labels": rows("labels", -100), "attention_mask": mask}


def pack(batch):
    """All examples in one row, kept apart by positions and boundaries."""
    ids, labels, positions, ends = [], [], [], [0]
    for example in batch:
        ids += example["input_ids"]
        labels += [-100, *example["labels"][1:]]
        positions += range(len(example["input_ids"]))
        ends.append(len(ids))
    cu = torch.tensor(ends, dtype=torch.int32)
    return {
        "input_ids": torch.tensor([ids]),
        "labels": torch.tensor([labels]),
        "position_ids": torch.tensor([positions]),
        "cu_seq_lens_q": cu,
        "cu_seq_lens_k": cu,
    }


def train(flags: argparse.Namespace) -> None:
    """Train for a few dozen optimizer steps."""
    import plants

    torch.set_num_threads(1)
    if not flags.any_seed:
        torch.manual_seed(0)
    parts = Parts(examples=make_examples(), collate=pack if flags.rows == "packed" else pad)
    plant = plants.PLANTS.get(flags.plant)
    if flags.baseline:
        plants.PLANTS[flags.baseline](parts, "before model")
    if plant:
        plant(parts, "before model")
    parts.model = parts.model or TinyLM()
    if flags.baseline:
        plants.PLANTS[flags.baseline](parts, "after model")
    if plant:
        plant(parts, "after model")
    parts.optimizer = parts.optimizer or torch.optim.AdamW(parts.model.parameters(), lr=2e-3)
    if plant:
        plant(parts, "after optimizer")
    if parts.loss:
        parts.model.token_loss = parts.loss
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("gloo")
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        parts.examples = parts.examples[rank::world]
        parts.model = nn.parallel.DistributedDataParallel(parts.model)
    run(parts, flags)


def run(parts: Parts, flags: argparse.Namespace) -> None:
    generator = torch.Generator().manual_seed(7)
    options = {"shuffle": True, "generator": generator, **parts.loader_options}
    model, optimizer = parts.model, parts.optimizer
    model.train()
    step = 0
    for _ in range(20):
        loader = DataLoader(
            parts.examples, batch_size=parts.batch_size, collate_fn=parts.collate, drop_last=True, **options
        )
        waiting = []
        for batch in loader:
            waiting.append(batch)
            if len(waiting) < parts.accumulate:
                continue
            batches, waiting = (parts.split(waiting) if parts.split else waiting), []
            time.sleep(flags.sleep_ms / 1000)
            one_step(parts, model, optimizer, batches, step)
            step += 1
            if step >= flags.steps:
                return


def one_step(parts, model, optimizer, batches, step):
    """Micro-batches weighed by their labels: the mean over all labels of the step."""
    if parts.before_step:
        parts.before_step(step, model, optimizer)
        optimizer = parts.optimizer
    total = sum(int((b["labels"][:, 1:] != -100).sum()) for b in batches)
    logged = 0.0
    for number, batch in enumerate(batches):
        if parts.before_micro_batch:
            parts.before_micro_batch(model, number, number == len(batches) - 1)
        own = int((batch["labels"][:, 1:] != -100).sum())
        loss = model(**batch)["loss"]
        share = parts.micro_loss(loss, own, total, len(batches)) if parts.micro_loss else loss * own / total
        share.backward()
        logged = logged + share.detach()
        if parts.after_backward:
            parts.after_backward(model, number, number == len(batches) - 1)
    (parts.clip or clip)(model)
    optimizer.step()
    optimizer.zero_grad()
    if parts.after_step:
        parts.after_step(step, model, optimizer)
    (parts.log or log)(step, logged)


def clip(model):
    return nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def log(step, loss):
    print(f"step {step} loss {float(loss):.6f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", choices=["padded", "packed"], default="padded")
    parser.add_argument("--plant", default="")
    parser.add_argument("--baseline", default="", help="a plant that belongs to both arms")
    parser.add_argument("--any-seed", action="store_true", help="start from whatever seed is set")
    parser.add_argument("--sleep-ms", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=40)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    train(parser.parse_args())
