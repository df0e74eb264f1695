"""A small Llama trained by the Hugging Face Trainer, with an evaluation and a checkpoint on the way."""

import argparse
import sys

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

if "--parser" in sys.argv:
    sys.argv.remove("--parser")
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
else:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--batch", type=int, default=2)
    args = parser.parse_args()
    arguments = TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=args.batch,
        gradient_accumulation_steps=2,
        max_steps=12,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=8,
        save_steps=8,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=3,
    )

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    pad_token_id=0,
)
model = LlamaForCausalLM(config)
generator = torch.Generator().manual_seed(1)
rows = [torch.randint(3, 96, (int(n),), generator=generator) for n in torch.randint(4, 20, (64,), generator=generator)]


def collate(examples):
    longest = max(len(row["input_ids"]) for row in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for i, example in enumerate(examples):
        row = example["input_ids"]
        ids[i, : len(row)], labels[i, : len(row)] = row, row
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


class Recorded(Trainer):
    def log(self, logs, *args, **kwargs):
        if "loss" in logs:
            print("loss", float(logs["loss"]).hex())
        super().log(logs, *args, **kwargs)


trainer = Recorded(
    model=model,
    args=arguments,
    train_dataset=[{"input_ids": row} for row in rows],
    eval_dataset=[{"input_ids": row} for row in rows[:4]],
    data_collator=collate,
)
trainer.train()
print("end of the job")
