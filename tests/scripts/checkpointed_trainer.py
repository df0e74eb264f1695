"""transformers.Trainer with activation checkpointing and accumulation, as TrainingArguments ask for them."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

from checkpointed_loop import BLOCKS, WIDTH, Examples, pad


class Log(Trainer):
    def compute_loss(self, model, inputs, **kwargs):
        loss = super().compute_loss(model, inputs, **kwargs)
        print("loss", f"{loss.item():.9f}", len(inputs["input_ids"]), flush=True)
        return loss


def main():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=BLOCKS,
        num_attention_heads=4, num_key_value_heads=4,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        max_steps=20,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        remove_unused_columns=False,
        disable_tqdm=True,
    )
    trainer = Log(model=model, args=arguments, train_dataset=Examples(), data_collator=pad)
    trainer.train()


if __name__ == "__main__":
    main()
