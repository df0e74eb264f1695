"""Chat fine-tuning: answers only, a large vocabulary, batches of similar length."""

from __future__ import annotations

import argparse
import random
import time

import corpus
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig

PAD = 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=96, help="tokens of the question that are kept")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--compile-loss", action="store_true")
    return parser.parse_args()


class Chats(torch.utils.data.Dataset):
    """Chats as token ids; only the answer is a label."""

    def __init__(self, args, count=320):
        self.args = args
        self.tokenizer = corpus.tokenizer()
        self.chats = corpus.conversations(count)
        self.rows = [self.encode(chat) for chat in self.chats]
        self.lengths = [len(row["ids"]) for row in self.rows]

    def encode(self, chat):
        prompt = self.tokenizer.apply_chat_template(chat[:1], tokenize=False, add_generation_prompt=True)
        text = self.tokenizer.apply_chat_template(chat, tokenize=False)
        prompt_ids = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        answer = ids[len(prompt_ids) :]
        question = prompt_ids[-self.args.prompt :]
        ids = (question + answer)[: self.args.longest]
        labels = ([-100] * len(question) + answer)[: self.args.longest]
        return {"ids": ids, "labels": labels}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class SimilarLength(torch.utils.data.Sampler):
    """Batches of examples of about the same length, in another order every epoch."""

    def __init__(self, lengths, batch_size):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[n : n + batch_size] for n in range(0, len(order), batch_size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        random.shuffle(self.batches)
        return iter(self.batches)


def collate(rows):
    width = max(len(row["ids"]) for row in rows)
    ids = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        length = len(row["ids"])
        ids[i, :length] = torch.tensor(row["ids"])
        labels[i, :length] = torch.tensor(row["labels"])
        mask[i, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def token_loss(hidden, weight, targets):
    """Mean loss of the supervised positions, [n, width] and [n]."""
    return F.cross_entropy((hidden @ weight.T).float(), targets)


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    data = Chats(args)
    loader = DataLoader(
        data,
        batch_sampler=SimilarLength(data.lengths, args.batch_size),
        collate_fn=collate,
        num_workers=2 if on_gpu else 0,
        pin_memory=on_gpu,
        persistent_workers=on_gpu,
    )
    config = LlamaConfig(
        vocab_size=args.vocabulary,
        hidden_size=args.width,
        intermediate_size=args.width * 11 // 4,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // 32,
        num_key_value_heads=args.width // 64,
        use_cache=False,
    )
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(device)
    model.train()
    criterion = torch.compile(token_loss, dynamic=True) if args.compile_loss else token_loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    running = torch.zeros((), device=device)
    step = 0
    started = time.perf_counter()
    while step < args.steps:
        for batch in loader:
            # the supervised positions are found on the host, where the labels are anyway
            targets = batch["labels"][:, 1:].reshape(-1)
            kept = (targets != -100).nonzero().squeeze(1)
            targets = targets[kept].to(device, non_blocking=True)
            kept = kept.to(device, non_blocking=True)
            ids = batch["input_ids"].to(device, non_blocking=True)
            mask = batch["attention_mask"].to(device, non_blocking=True)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu):
                hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state
                hidden = hidden[:, :-1].flatten(0, 1)[kept]
                loss = criterion(hidden, model.lm_head.weight, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            running += loss.detach()
            step += 1
            if step == 3:
                started = time.perf_counter()
            if step % 20 == 0:
                print(f"step {step} loss {running.item() / 20:.3f}", flush=True)
                running.zero_()
            if step == args.steps:
                break
    if args.steps > 3:
        print(f"{1000 * (time.perf_counter() - started) / (args.steps - 3):.1f} ms/step")


if __name__ == "__main__":
    main()
