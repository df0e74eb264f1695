"""Made-up text for the reference jobs: the same on every machine, and no download."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch

WORDS = 3000


def token_rows(count: int, length: int, vocabulary: int, seed: int = 7) -> torch.Tensor:
    """Token ids of documents that all fill the context, [count, length]; frequent tokens are frequent."""
    rng = np.random.default_rng(seed)
    ranks = (rng.pareto(1.1, size=(count, length)) * 8).astype(np.int64)
    return torch.from_numpy(3 + ranks % (vocabulary - 3))


def ragged_rows(count: int, longest: int, vocabulary: int, seed: int = 7) -> list[list[int]]:
    """Token ids of documents of very different lengths, most of them short."""
    rng = random.Random(seed)
    lengths = [max(12, min(longest, int(rng.lognormvariate(4.0, 0.8)))) for _ in range(count)]
    return [[rng.randrange(3, vocabulary) for _ in range(length)] for length in lengths]


def words(rng: random.Random, count: int) -> str:
    """A text of so many made-up words."""
    return " ".join(f"w{int(rng.paretovariate(0.6)) % WORDS}" for _ in range(count))


def conversations(count: int, seed: int = 7) -> list[list[dict[str, str]]]:
    """Chats as they come from a data set: a long document in the question, a short answer."""
    rng = random.Random(seed)
    chats = []
    for _ in range(count):
        question = words(rng, rng.randrange(1500, 3000))
        answer = words(rng, max(8, min(90, int(rng.lognormvariate(3.2, 0.6)))))
        chats.append([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])
    return chats


def tokenizer():
    """A word-level tokenizer of the made-up language, with a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<unk>", "<end>", "<user>", "<assistant>", *(f"w{n}" for n in range(WORDS))]
    model = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", unk_token="<unk>", eos_token="<end>"
    )
    fast.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    return fast


def write_shards(folder: Path, count: int, length: int, vocabulary: int) -> list[Path]:
    """One file for each example, as a crawler leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = token_rows(count, length, vocabulary).tolist()
    paths = [folder / f"{number:05d}.txt" for number in range(count)]
    for path, row in zip(paths, rows, strict=True):
        path.write_text(" ".join(map(str, row)))
    return paths
