"""A small Llama fine-tuned by TRL's SFTTrainer on made-up text, packed when asked for."""

import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer, TrlParser

words = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(60))]
raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
)

if "--config" in sys.argv:
    (config,) = TrlParser(SFTConfig).parse_args_and_config()
else:
    config = SFTConfig(
        output_dir="out",
        per_device_train_batch_size=2,
        max_steps=14,
        logging_steps=1,
        max_length=64,
        packing=True,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
generator = torch.Generator().manual_seed(0)
texts = [
    " ".join(f"w{int(w)}" for w in torch.randint(0, 60, (int(n),), generator=generator))
    for n in torch.randint(5, 40, (96,), generator=generator)
]
torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
)
trainer = SFTTrainer(
    model=model,
    args=config,
    train_dataset=Dataset.from_list([{"text": text} for text in texts]),
    processing_class=tokenizer,
)
trainer.train()
for entry in trainer.state.log_history:
    if "loss" in entry:
        print("loss", float(entry["loss"]).hex())
print("end of the job")
