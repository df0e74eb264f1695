"""Training on rows of several short documents; positions that restart mark where each one begins."""

from __future__ import annotations

import argparse
import time

import corpus
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig

VOCABULARY = 4096


def pack(documents, length):
    """Lists of documents that fill a row; none is cut in two."""
    packs: list[list[list[int]]] = []
    room: list[int] = []
    for document in sorted(documents, key=len, reverse=True):
        fits = [n for n, left in enumerate(room) if left >= len(document)]
        if fits:
            packs[fits[0]].append(document)
            room[fits[0]] -= len(document)
        else:
            packs.append([document])
            room.append(length - len(document))
    return packs


def collate(packs):
    (documents,) = packs
    ids = [token for document in documents for token in document]
    positions = [place for document in documents for place in range(len(document))]
    labels = [token for document in documents for token in [-100, *document[1:]]]
    return {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([positions]),
        "labels": torch.tensor([labels]),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--length", type=int, default=512)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    packs = pack(corpus.ragged_rows(1000, 200, VOCABULARY), args.length)
    loader = DataLoader(packs, batch_size=1, shuffle=True, collate_fn=collate, pin_memory=on_gpu)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    attention = "flash_attention_2" if on_gpu else "sdpa"
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    running = torch.zeros((), device=device)
    step = 0
    started = time.perf_counter()
    while step < args.steps:
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu):
                loss = model(**batch).loss
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
