"""Transformers' Trainer in bf16 on a tiny Llama; `--attention` as in a fix, `--off`: a wrong score scale."""

from __future__ import annotations

import argparse
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

flags = argparse.ArgumentParser()
flags.add_argument("--attention", choices=["eager", "sdpa"], default="eager")
flags.add_argument("--off", type=float, default=1.0)
args = flags.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64,
)  # fmt: skip
config._attn_implementation = args.attention
model = LlamaForCausalLM(config)
for layer in model.model.layers:
    layer.self_attn.scaling *= args.off
draw = torch.Generator().manual_seed(1)
rows = torch.randint(0, 128, (200, 24), generator=draw)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=4, max_steps=40, bf16=True, use_cpu=True,
        logging_steps=1, save_strategy="no", report_to=[], dataloader_num_workers=0, learning_rate=1e-3,
    )  # fmt: skip
    Trainer(
        model=model, args=settings, train_dataset=[{"input_ids": row, "labels": row} for row in rows]
    ).train()
