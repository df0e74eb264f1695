"""Fine-tune with the Hugging Face Trainer: python hf_trainer.py --output_dir out --max_steps 200"""

from chats import collate, load_model, load_texts, load_tokenizer
from transformers import HfArgumentParser, Trainer, TrainingArguments


def main():
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    tokenizer = load_tokenizer()
    rows = [{"input_ids": tokenizer(t, truncation=True, max_length=512)["input_ids"]} for t in load_texts()]
    trainer = Trainer(
        model=load_model(len(tokenizer)), args=arguments, train_dataset=rows, data_collator=collate
    )
    trainer.train()


if __name__ == "__main__":
    main()
