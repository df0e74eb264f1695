"""transformers.Trainer with a collator of its own; the settings come from TrainingArguments."""
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import common


class Log(Trainer):
    def compute_loss(self, model, inputs, **kwargs):
        loss = super().compute_loss(model, inputs, **kwargs)
        print("trainer", f"{loss.item():.9f}", len(inputs["input_ids"]))
        return loss


def main():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(common.llama(), attn_implementation="eager")
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        max_steps=4,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        remove_unused_columns=False,
    )
    trainer = Log(model=model, args=arguments, train_dataset=common.make_examples(), data_collator=common.pad)
    trainer.train()


if __name__ == "__main__":
    main()
