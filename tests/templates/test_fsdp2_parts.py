"""The parts of the generated script by themselves: packing, plan, attention, loss, labels."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from script_job import DENSE, HYBRID, LEAKS, context, load_script, write_script

from autotune.records.script import BatchContext, DataContext, ModelContext


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("script")


@pytest.fixture(scope="module")
def by_rows(folder: Path) -> ModuleType:
    return load_script(
        write_script(folder, context(DENSE, batch=BatchContext(rows_per_step=4)), "by_rows.py")
    )


@pytest.fixture(scope="module")
def by_examples(folder: Path) -> ModuleType:
    return load_script(write_script(folder, context(DENSE), "by_examples.py"))


@pytest.fixture(scope="module")
def padded(folder: Path) -> ModuleType:
    batch = BatchContext(examples_per_step=8, rows_per_micro_batch=2, pad_multiple=8)
    return load_script(write_script(folder, context(HYBRID, packing=LEAKS, batch=batch), "padded.py"))


def options(module: ModuleType, **changed: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**module.OPTIONS, **changed})


def examples(count: int = 203, longest: int = 60) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    made = [
        torch.tensor(rng.integers(3, 96, (1, rng.integers(1, longest + 1)))).repeat(2, 1)
        for _ in range(count)
    ]
    for example in made:
        example[1, 0] = -100
    return [example.int() for example in made]


def numbers(steps: list[list[list[int]]]) -> list[int]:
    return [number for step in steps for group in step for number in group]


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_example_is_in_exactly_one_row_and_rows_are_full(by_rows: ModuleType, shuffle: bool) -> None:
    cfg = options(by_rows, shuffle_window=50, row_tokens=128)
    steps = by_rows.Steps(examples(), cfg, 0, 1, shuffle)
    plan = list(steps.plan(0))
    assert sorted(numbers(plan)) == list(range(203))
    assert all(len(step) == 4 for step in plan[:-1])
    fill = [sum(steps.sizes[n][0] for n in row) for step in plan for row in step]
    assert max(fill) <= 128
    assert sum(fill[:-4]) / (128 * len(fill[:-4])) > 0.98
    assert list(steps.plan(0)) == plan
    assert (list(steps.plan(1)) == plan) != shuffle


def test_steps_have_the_same_examples_whatever_the_ranks_and_rows(
    by_examples: ModuleType, padded: ModuleType
) -> None:
    cfg = options(by_examples, row_tokens=64)
    plan = list(by_examples.Steps(examples(), cfg, 0, 1, True).plan(0))
    assert [len(numbers([step])) for step in plan] == [8] * 25 + [3]
    wide = list(by_examples.Steps(examples(), options(by_examples, row_tokens=256), 1, 4, True).plan(0))
    alone = list(padded.Steps(examples(), options(padded), 0, 2, True).plan(0))
    for step, other, one in zip(plan, wide, alone, strict=True):
        assert sorted(numbers([step])) == sorted(numbers([other])) == sorted(numbers([one]))
    dropped = list(by_examples.Steps(examples(), options(by_examples, drop_last=True), 0, 1, True).plan(0))
    assert len(dropped) == 25


def test_ranks_share_a_step_and_a_restart_goes_on_in_the_middle(by_rows: ModuleType) -> None:
    cfg = options(by_rows, row_tokens=64, shuffle_window=50)
    ranks = [by_rows.Steps(examples(), cfg, rank, 3, True, epochs=2) for rank in range(3)]
    steps = list(zip(*ranks, strict=True))
    for (mine, facts, at), (second, other_facts, other_at), (third, _, _) in steps:
        assert len(mine) == len(second) == len(third)  # 4 rows on 3 ranks: two of 6 are fillers
        assert facts == other_facts and at == other_at
        kept = [b["targets"] for batches in (mine, second, third) for b in batches]
        assert sum(int((t >= 0).sum()) for t in kept) == facts["supervised"]
    again = by_rows.Steps(examples(), cfg, 1, 3, True, epochs=2)
    again.start = steps[4][0][2]
    for (batches, facts, at), expected in zip(again, [step[1] for step in steps[5:]], strict=True):
        assert facts == expected[1] and at == expected[2]
        assert all(
            torch.equal(b["input_ids"], e["input_ids"]) for b, e in zip(batches, expected[0], strict=True)
        )


def test_targets_never_cross_a_boundary_and_boundaries_cover_the_row(by_rows: ModuleType) -> None:
    data = examples()
    cfg = options(by_rows, row_tokens=64)
    row = sorted(range(len(data)), key=lambda n: data[n].shape[1])[20:23]
    batch = by_rows.Steps(data, cfg, 0, 1, True).batch(row)
    lengths = [data[n].shape[1] for n in row]
    ends = batch["cu_seq_lens_q"]
    assert sum(lengths) < 64
    assert ends.tolist() == [0, *np.cumsum(lengths).tolist(), 64]
    assert ends.dtype == batch["seq_idx"].dtype == torch.int32 and batch["input_ids"].shape == (1, 64)
    assert isinstance(batch["max_length_q"], int) and batch["max_length_q"] == int(ends.diff().max())
    assert torch.equal((batch["position_ids"][0] == 0).nonzero().flatten(), ends[:-1].long())
    assert torch.equal(batch["targets"], batch["input_ids"][0][batch["keep"] + 1])
    assert not set(batch["keep"].tolist()) & {end - 1 for end in np.cumsum(lengths).tolist()}
    assert len(batch["keep"]) == sum(lengths) - 3


@pytest.mark.parametrize("choice", ["refuse", "split", "truncate"])
def test_long_examples(by_rows: ModuleType, choice: str) -> None:
    ids = list(range(3, 93)) + [93] * 60
    row = {"input_ids": ids, "labels": ids, "attention_mask": [1] * 90 + [0] * 60}  # padding is taken off
    cfg = options(by_rows, max_length=40, long_examples=choice)
    if choice == "refuse":
        with pytest.raises(SystemExit, match="90 tokens"):
            list(by_rows.examples_of([row], cfg, None))
        return
    made = list(by_rows.examples_of([row], cfg, None))
    targets = [x for piece in made for x in piece[1].tolist() if x != -100]
    assert targets == (ids[1:90] if choice == "split" else ids[1:40])
    assert all(piece.shape[1] <= 40 for piece in made)


def test_rows_may_be_bare_ids_or_pairs(by_rows: ModuleType) -> None:
    cfg = options(by_rows)
    assert by_rows.encode(torch.tensor([5, 6]), cfg, None) == ([5, 6], [5, 6])
    assert by_rows.encode([5, 6], cfg, None) == ([5, 6], [5, 6])
    assert by_rows.encode(([5, 6], [-100, 6]), cfg, None) == ([5, 6], [-100, 6])
    assert by_rows.encode({"input_ids": [5, 6, 0], "attention_mask": [1, 1, 0]}, cfg, None) == (
        [5, 6],
        [5, 6],
    )


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("with_bias", [True, False])
def test_chunked_loss_has_the_gradients_of_the_plain_one(
    by_rows: ModuleType, softcap: Any, with_bias: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(37, 16, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(50, 16, dtype=torch.float64, generator=generator, requires_grad=True)
    bias = (
        torch.randn(50, dtype=torch.float64, generator=generator, requires_grad=True) if with_bias else None
    )
    targets = torch.randint(0, 50, (37,), generator=generator)
    targets[3], targets[36] = -100, -100
    leaves = [x for x in (hidden, weight, bias) if x is not None]

    def plain() -> torch.Tensor:
        logits = F.linear(hidden, weight, bias) * 0.5
        logits = softcap * torch.tanh(logits / softcap) if softcap else logits
        return F.cross_entropy(logits, targets, reduction="sum")

    mine = by_rows.ChunkedCrossEntropy.apply(hidden, weight, bias, targets, 0.5, softcap, 8)
    expected = torch.autograd.grad(plain() / 7, leaves)
    found = torch.autograd.grad(mine / 7, leaves)
    assert float(mine.detach()) == pytest.approx(
        float(plain().detach()), rel=1e-5
    )  # the script works in fp32 inside
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=1e-5, atol=1e-6)


def test_all_ignored_rows_give_zero_and_not_nan(by_rows: ModuleType) -> None:
    hidden, weight = torch.randn(2, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
    loss = by_rows.ChunkedCrossEntropy.apply(hidden, weight, None, torch.tensor([-100, -100]), 1.0, None, 8)
    loss.backward()
    assert float(loss.detach()) == 0 and not hidden.grad.any() and not weight.grad.any()


@pytest.mark.parametrize("window", [None, 5])
def test_attention_equals_a_block_diagonal_mask(by_rows: ModuleType, window: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, 30, 8, generator=generator)
    k, v = torch.randn(2, 1, 2, 30, 8, generator=generator)
    ends = torch.tensor([0, 12, 13, 30], dtype=torch.int32)
    segment = torch.bucketize(torch.arange(30), ends[1:], right=True)
    distance = torch.arange(30)[:, None] - torch.arange(30)[None]
    mask = (segment[:, None] == segment[None]) & (distance >= 0) & (distance < (window or 99))
    expected = F.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    module = torch.nn.Module()
    found, _ = by_rows.segment_attention(
        module, q, k, v, None, scaling=0.3, cu_seq_lens_q=ends, sliding_window=window
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(SystemExit, match="--attention"):
        by_rows.segment_attention(module, q, k, v, None, softcap=30.0)


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_only_what_the_assistant_says_is_supervised(folder: Path) -> None:
    """With a template that, like Qwen3's, writes the last turn differently from earlier ones."""
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    special = ["<|im_start|>", "<|im_end|>"]
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        special_tokens=special, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    raw.train_from_iterator(["some text"], trainer)
    raw.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", chat_template=CHATML)
    ctx = context(
        DENSE,
        model=ModelContext(config=DENSE, weights="random", tokenizer="somewhere"),
        data=DataContext(source="data.jsonl", kind="messages"),
    )
    script = load_script(write_script(folder, ctx, "chat.py"))
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi there"},
        {"role": "user", "content": "How are you?"},
        {"role": "assistant", "content": "Fine."},
    ]
    ids, labels = script.encode({"messages": messages}, options(script), tokenizer)
    assert tokenizer.decode(ids) == tokenizer.apply_chat_template(messages, tokenize=False)
    learned = tokenizer.decode([x for x in labels if x != -100])
    assert learned in (
        "Hi there<|im_end|>\n<think></think>Fine.<|im_end|>\n",
        "Hi there<|im_end|><think></think>Fine.<|im_end|>\n",
    )
    every = script.encode({"messages": messages}, options(script, supervise="all"), tokenizer)
    assert every[0] == every[1] == ids


def test_rows_come_from_files_and_from_python(folder: Path) -> None:
    (folder / "a_hook.py").write_text(
        "class Rows:\n"
        "    def __init__(self, count, tokenizer=None):\n"
        "        self.count, self.tokenizer = count, tokenizer\n"
        "    def __len__(self):\n        return self.count\n"
        "    def __getitem__(self, i):\n        return {'input_ids': [i, 7], 'by': self.tokenizer}\n"
    )
    (folder / "more.jsonl").write_text("\n".join(json.dumps({"input_ids": [n]}) for n in range(3)) + "\n")
    source = f"{folder / 'a_hook.py'}:Rows"
    ctx = context(
        DENSE, data=DataContext(source=source, kind="tokens", eval_source=str(folder / "more.jsonl"))
    )
    script = load_script(write_script(folder, ctx, "hooked.py"))
    rows = list(script.read_rows(source, options(script), {"count": 4}, "the tokenizer"))
    assert [row["input_ids"] for row in rows] == [[0, 7], [1, 7], [2, 7], [3, 7]]
    assert rows[0]["by"] == "the tokenizer"
    assert len(list(script.read_rows(str(folder / "*.jsonl"), options(script), {}, None))) == 3
    with pytest.raises(FileNotFoundError):
        list(script.read_rows("nothing_here.jsonl", options(script), {}, None))
