"""TRL's SFTTrainer; the settings come from SFTConfig."""
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from trl import SFTConfig, SFTTrainer

import common


class Log(SFTTrainer):
    def compute_loss(self, model, inputs, **kwargs):
        loss = super().compute_loss(model, inputs, **kwargs)
        print(f"\nsft {loss.item():.9f} {len(inputs['input_ids'])}")
        return loss


def main():
    torch.manual_seed(0)
    words = {f"w{i}": i for i in range(126)} | {"<pad>": 126, "</s>": 127}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")), pad_token="<pad>", eos_token="</s>"
    )
    rows = [{"input_ids": ids.tolist()} for ids in common.make_examples()]
    model = AutoModelForCausalLM.from_config(common.llama(), attn_implementation="sdpa")
    arguments = SFTConfig(
        output_dir="out", per_device_train_batch_size=4, max_steps=4, report_to=[], use_cpu=True, bf16=False,
        save_strategy="no", logging_strategy="no", gradient_checkpointing=False,
    )
    trainer = Log(model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.train()


if __name__ == "__main__":
    main()
