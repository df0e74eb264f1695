import torch
from transformers import LlamaConfig, Qwen3Config


def make_examples(count=24):
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(3, 40, (count,), generator=generator).tolist()
    return [torch.randint(1, 120, (n,), generator=generator) for n in lengths]


def pad(examples):
    longest = max(len(ids) for ids in examples)
    input_ids = torch.zeros(len(examples), longest, dtype=torch.long)
    mask = torch.zeros_like(input_ids)
    labels = torch.full_like(input_ids, -100)
    for row, ids in enumerate(examples):
        input_ids[row, : len(ids)] = ids
        mask[row, : len(ids)] = 1
        labels[row, : len(ids)] = ids
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}


def llama():
    return LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip


def qwen3():
    return Qwen3Config(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
