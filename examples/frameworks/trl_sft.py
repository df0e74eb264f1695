"""Fine-tune with TRL: python trl_sft.py --config sft.yaml"""

from chats import load_model, load_texts, load_tokenizer
from datasets import Dataset
from trl import SFTConfig, SFTTrainer, TrlParser


def main():
    (config,) = TrlParser(SFTConfig).parse_args_and_config()
    tokenizer = load_tokenizer()
    trainer = SFTTrainer(
        model=load_model(len(tokenizer)),
        args=config,
        train_dataset=Dataset.from_list([{"text": text} for text in load_texts()]),
        processing_class=tokenizer,
    )
    trainer.train()


if __name__ == "__main__":
    main()
