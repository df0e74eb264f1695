"""Data and a tiny model that the framework examples share: human chats, and a Llama from a configuration."""

from pathlib import Path

import chitchat_dataset
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TOKENIZER = Path(__file__).resolve().parent.parent / "chat_sft" / "tokenizer.json"


def load_tokenizer():
    return PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), pad_token="<|pad|>", eos_token="<|end|>")


def load_texts(limit=600):
    texts = []
    for chat in chitchat_dataset.Dataset().values():
        turns = [" ".join(m["text"] for m in turn) for turn in chat["messages"]]
        if len(turns) > 1:
            texts.append("<|end|>".join(turns))
    return texts[:limit]


def load_model(vocab_size, attention="eager"):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        use_cache=False,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config)


def collate(examples):
    longest = max(len(example["input_ids"]) for example in examples)
    input_ids = torch.zeros(len(examples), longest, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    labels = torch.full_like(input_ids, -100)
    for row, example in enumerate(examples):
        ids = torch.tensor(example["input_ids"])
        input_ids[row, : len(ids)] = ids
        attention_mask[row, : len(ids)] = 1
        labels[row, : len(ids)] = ids
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
