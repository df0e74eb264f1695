"""A transformers Trainer that saves, rotates, resumes from the latest checkpoint and pushes to the hub."""

import os
import sys

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

steps, push = int(sys.argv[1]), "--push" in sys.argv
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel({str(n): n for n in range(64)}, unk_token="0")), pad_token="0"
)
config = LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    max_position_embeddings=32,
)
model = LlamaForCausalLM(config)
rows = [{"input_ids": torch.arange(1, 17), "labels": torch.arange(1, 17)} for _ in range(400)]
arguments = TrainingArguments(
    output_dir="out", max_steps=steps, save_steps=2, save_total_limit=2, logging_steps=1, report_to=[],
    per_device_train_batch_size=2, use_cpu=True, push_to_hub=push, hub_model_id="someone/model", hub_token="x",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=rows, processing_class=tokenizer)
latest = get_last_checkpoint("out") if os.path.isdir("out") else None
print("resume", latest)
try:
    trainer.train(resume_from_checkpoint=latest)
finally:
    trainer.save_model("final")
    LlamaForCausalLM.from_pretrained("final")
    print("left", sorted(os.listdir("out")), sorted(os.listdir("final")))
if push:
    trainer.push_to_hub()
