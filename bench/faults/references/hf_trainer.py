"""Fine-tuning with the Hugging Face Trainer."""

from __future__ import annotations

import argparse
import time

import corpus
import torch
from transformers import (
    AutoModelForCausalLM,
    DataCollatorForSeq2Seq,
    LlamaConfig,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Documents(torch.utils.data.Dataset):
    """Token ids of documents of different lengths."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return {"input_ids": row, "labels": row, "length": len(row)}


class StepTime(TrainerCallback):
    """The mean time of a step, once at the end."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            self.started = time.perf_counter()
        if state.global_step == state.max_steps and state.max_steps > 3:
            print(f"{1000 * (time.perf_counter() - self.started) / (state.max_steps - 3):.1f} ms/step")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--even-length", type=int, default=0, help="documents that all have this length")
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=options.width,
        intermediate_size=options.width * 11 // 4,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 32,
        num_key_value_heads=options.width // 64,
        use_cache=False,
    )
    with torch.device("cuda" if on_gpu else "cpu"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    tokenizer = corpus.tokenizer()
    rows = corpus.ragged_rows(1000, 256, 4096)
    if options.even_length:
        rows = corpus.token_rows(1000, options.even_length, 4096).tolist()
    arguments = TrainingArguments(
        output_dir="output",
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        train_sampling_strategy="group_by_length",
        length_column_name="length",
        learning_rate=3e-4,
        bf16=on_gpu,
        tf32=True if on_gpu else None,
        optim="adamw_torch_fused",
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=2 if on_gpu else 0,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Documents(rows[:900]),
        eval_dataset=Documents(rows[900:]),
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding="longest"),
        callbacks=[StepTime()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
