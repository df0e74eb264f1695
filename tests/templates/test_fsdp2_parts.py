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


@pytest.fixture(scope="module")
def rows(folder: Path) -> str:
    """203 rows of 1 to 60 tokens, in a file."""
    rng = np.random.default_rng(0)
    made = [rng.integers(3, 96, rng.integers(1, 61)).tolist() for _ in range(203)]
    path = folder / "many" / "rows.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in made))
    return str(path)


def steps_of(module: ModuleType, rows: str, rank: int = 0, world: int = 1, **changed: Any) -> Any:
    steps = module.Steps(rows, {}, options(module, max_length=0, **changed), None, rank, world)
    steps.epochs = 2
    return steps


def numbers(steps: Any, plan: list[Any]) -> list[int]:
    """The examples of a plan by their place in the data."""
    places = {id(example): n for n, example in enumerate(steps.examples)}
    return [places[id(example)] for step in plan for group in step for example in group]


def tokens(row: list[torch.Tensor]) -> int:
    return sum(example.shape[1] for example in row)


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_example_is_in_exactly_one_row_and_rows_are_full(
    by_rows: ModuleType, rows: str, shuffle: bool
) -> None:
    steps = steps_of(by_rows, rows, shuffle_window=50, row_tokens=128, shuffle=shuffle)
    plan = list(steps.plan(0))
    assert sorted(numbers(steps, plan)) == list(range(203))
    assert all(len(step) == 4 for step in plan[:-1])
    fill = [tokens(row) for step in plan for row in step]
    assert max(fill) <= 128
    assert sum(sorted(fill)[4:]) / (128 * len(fill[4:])) > 0.98
    assert numbers(steps, list(steps.plan(0))) == numbers(steps, plan)
    assert (numbers(steps, list(steps.plan(1))) == numbers(steps, plan)) != shuffle


def test_steps_have_the_same_examples_whatever_the_ranks_and_rows(
    by_examples: ModuleType, padded: ModuleType, rows: str
) -> None:
    def of(module: ModuleType, **changed: Any) -> list[list[int]]:
        steps = steps_of(module, rows, **changed)
        return [sorted(numbers(steps, [step])) for step in steps.plan(0)]

    plan = of(by_examples, row_tokens=64)
    assert [len(step) for step in plan] == [8] * 25 + [3]
    assert plan == of(by_examples, rank=1, world=4, row_tokens=256) == of(padded, world=2)
    assert len(of(by_examples, drop_last=True)) == 25


def test_ranks_share_a_step_and_a_restart_goes_on_in_the_middle(by_rows: ModuleType, rows: str) -> None:
    settings = {"row_tokens": 64, "shuffle_window": 50}
    ranks = [steps_of(by_rows, rows, rank, 3, **settings) for rank in range(3)]
    steps = list(zip(*ranks, strict=True))
    for (mine, facts, at), (second, other_facts, other_at), (third, _, _) in steps:
        assert len(mine) == len(second) == len(third)  # 4 rows on 3 ranks: two of 6 are fillers
        assert facts == other_facts and at == other_at
        kept = [int(b["weight"]) * len(b["targets"]) for batches in (mine, second, third) for b in batches]
        assert sum(kept) == facts["supervised"]
    again = steps_of(by_rows, rows, 1, 3, **settings)
    again.start = steps[4][0][2]
    for (batches, facts, at), expected in zip(again, [step[1] for step in steps[5:]], strict=True):
        assert facts == expected[1] and at == expected[2]
        assert all(
            torch.equal(b["input_ids"], e["input_ids"]) for b, e in zip(batches, expected[0], strict=True)
        )


def test_targets_never_cross_a_boundary_and_boundaries_cover_the_row(by_rows: ModuleType, rows: str) -> None:
    steps = steps_of(by_rows, rows, row_tokens=64, compile="parts")
    row = sorted(steps.examples, key=lambda e: e.shape[1])[20:23]
    batch = steps.batch(row)
    lengths = [example.shape[1] for example in row]
    ends = batch["cu_seq_lens_q"]
    assert sum(lengths) < 64
    assert ends.tolist() == [0, *np.cumsum(lengths).tolist(), 64]
    assert ends.dtype == batch["seq_idx"].dtype == torch.int32 and batch["input_ids"].shape == (1, 64)
    assert isinstance(batch["max_length_q"], int) and batch["max_length_q"] == int(ends.diff().max())
    assert torch.equal((batch["position_ids"][0] == 0).nonzero().flatten(), ends[:-1].long())
    assert torch.equal(batch["targets"], batch["input_ids"][0][batch["keep"] + 1])
    assert not set(batch["keep"].tolist()) & {end - 1 for end in np.cumsum(lengths).tolist()}
    assert len(batch["keep"]) == sum(lengths) - 3 and batch["weight"] == 1.0
    compiled = steps_of(by_rows, rows, row_tokens=64, compile="blocks").batch(row)
    assert compiled["max_length_q"] == 64  # a bound that does not change from row to row
    filler = steps.batch([])
    assert filler["weight"] == 0.0 and len(filler["targets"]) == 1  # the head runs, the loss counts nothing


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
@pytest.mark.parametrize("limit", [8, 100])
def test_chunked_loss_has_the_gradients_of_the_plain_one(
    by_rows: ModuleType, softcap: Any, limit: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(37, 16, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(50, 16, dtype=torch.float64, generator=generator, requires_grad=True)
    targets = torch.randint(0, 50, (37,), generator=generator)

    def plain() -> torch.Tensor:
        logits = F.linear(hidden, weight)
        logits = softcap * torch.tanh(logits / softcap) if softcap else logits
        return F.cross_entropy(logits, targets, reduction="sum")

    mine = by_rows.ChunkedCrossEntropy.apply(hidden, weight, targets, softcap, limit, by_rows.target_gradient)
    expected = torch.autograd.grad(plain() / 7, (hidden, weight))
    found = torch.autograd.grad(mine / 7, (hidden, weight))
    assert float(mine.detach()) == pytest.approx(
        float(plain().detach()), rel=1e-5
    )  # the script works in fp32 inside
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=1e-5, atol=1e-6)


def test_gradient_in_bf16_is_the_rounded_one_also_where_the_model_is_sure(by_rows: ModuleType) -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    logits[0, 7] = 12.0  # p is 0.999: p - 1 after rounding p to bf16 would be 0 or a third too large
    targets = torch.tensor([7, 1, 2, 3, 4, 5])[:, None]
    rounded = logits.bfloat16()
    losses, found = by_rows.target_gradient(rounded.clone(), targets, None)
    exact = rounded.double().softmax(-1).scatter_add_(1, targets, -torch.ones(6, 1, dtype=torch.float64))
    assert found.dtype == torch.bfloat16 and losses.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-9)
    torch.testing.assert_close(
        losses[:, 0], F.cross_entropy(rounded.float(), targets[:, 0], reduction="none")
    )


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


@pytest.mark.parametrize(
    "sources",
    [
        ("none.jsonl", None), ("none/*.parquet", None), ("none.jsonl", "none.parquet"),
        ("none.json", "org/rows"), ("none.parquet", "train.py:Rows"),
    ],
)  # fmt: skip
def test_data_that_is_not_there_is_one_line(tmp_path: Path, sources: tuple[str, str | None]) -> None:
    data = DataContext(source=sources[0], eval_source=sources[1], kind="tokens")
    module = load_script(write_script(tmp_path, context(DENSE, data=data)))
    with pytest.raises(SystemExit) as ended:
        list(module.read_rows(sources[0], options(module), {}, None))
    line = f"{sources[0]}: there is no such file here; --data FILE"
    assert str(ended.value).startswith(line) and "\n" not in str(ended.value)


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
    with pytest.raises(SystemExit, match=r"nothing_here\.jsonl: there is no such file"):
        list(script.read_rows("nothing_here.jsonl", options(script), {}, None))
