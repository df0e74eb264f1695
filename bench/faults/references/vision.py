"""Captioning: a frozen image tower in front of a language model that is trained."""

from __future__ import annotations

import argparse
import time

import corpus
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig, SiglipVisionConfig, SiglipVisionModel


class Captioner(nn.Module):
    """Image features, projected, in front of the text."""

    def __init__(self, tower_layers):
        super().__init__()
        vision = SiglipVisionConfig(
            hidden_size=192,
            intermediate_size=768,
            num_hidden_layers=tower_layers,
            num_attention_heads=6,
            image_size=112,
            patch_size=8,
            vision_use_head=False,
        )
        vision._attn_implementation = "sdpa"
        self.tower = SiglipVisionModel(vision)
        self.tower.requires_grad_(False)
        self.projector = nn.Sequential(nn.Linear(192, 256), nn.GELU(), nn.Linear(256, 256))
        text = LlamaConfig(
            vocab_size=4096,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=3,
            num_attention_heads=8,
            num_key_value_heads=4,
            use_cache=False,
        )
        self.language = AutoModelForCausalLM.from_config(text, attn_implementation="sdpa")

    def features(self, pixels):
        with torch.no_grad():
            return self.tower(pixel_values=pixels).last_hidden_state

    def forward(self, pixels, input_ids):
        image = self.projector(self.features(pixels)[:, ::4])
        words = self.language.get_input_embeddings()(input_ids)
        hidden = self.language.model(inputs_embeds=torch.cat([image, words], dim=1)).last_hidden_state
        logits = self.language.lm_head(hidden[:, image.shape[1] : -1])
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), input_ids[:, 1:].flatten())


def collate(rows):
    ids = torch.stack(rows)
    noise = torch.Generator().manual_seed(int(ids.sum()))
    return {"pixels": torch.rand(len(rows), 3, 112, 112, generator=noise), "input_ids": ids}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--tower-layers", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    loader = DataLoader(
        corpus.token_rows(480, 64, 4096),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        pin_memory=on_gpu,
    )
    model = Captioner(args.tower_layers).to(device)
    model.train()
    model.tower.eval()
    trained = [*model.projector.parameters(), *model.language.parameters()]
    optimizer = torch.optim.AdamW(trained, lr=3e-4, fused=True)
    running = torch.zeros((), device=device)
    step = 0
    started = time.perf_counter()
    while step < args.steps:
        for batch in loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu):
                loss = model(**batch)
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
