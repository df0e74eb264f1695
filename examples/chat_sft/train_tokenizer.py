"""Train the byte-level BPE tokenizer of this project on the chat text and write tokenizer.json.

python train_tokenizer.py --vocab-size 4096
"""

import argparse
from pathlib import Path

import chitchat_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

parser = argparse.ArgumentParser()
parser.add_argument("--vocab-size", type=int, default=4096)
parser.add_argument("--output", default=str(Path(__file__).parent / "tokenizer.json"))
args = parser.parse_args()

texts = []
for chat in chitchat_dataset.Dataset().values():
    texts += [" ".join(message["text"] for message in turn) for turn in chat["messages"]]

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=args.vocab_size,
    special_tokens=["<|pad|>", "<|user|>", "<|assistant|>", "<|end|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
)
tokenizer.train_from_iterator(texts, trainer)
tokenizer.save(args.output, pretty=False)
print(f"{tokenizer.get_vocab_size()} tokens, {args.output}")
