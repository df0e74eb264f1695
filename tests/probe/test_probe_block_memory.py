"""Blocks that run without checkpointing for a step: what they keep, and that training does not change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from probe_parts import part

from tests.probe.jobs import faults, run

BLOCKS, WIDTH, ROWS, LONGEST = 6, 96, 4, 56
FLOAT = 4


@pytest.mark.job
@pytest.mark.parametrize(
    "style",
    [
        pytest.param("function", marks=pytest.mark.full),
        "wrapper",  # calls the function inside torch; FSDP2 on one gloo rank
        pytest.param("reentrant", marks=pytest.mark.full),
        pytest.param("transformers", marks=pytest.mark.full),
    ],
)
def test_plain_blocks_are_measured_and_train_alike(tmp_path: Path, style: str) -> None:
    words = ("--style", style, "--accumulation", "2")
    seen = run(
        tmp_path / "probe", "checkpointed_loop.py", *words,
        mode="timing", longest_first=True, longest_times=10, memory_probe=(0, 0, 1, 2, 0),
    )  # fmt: skip
    same = run(
        tmp_path / "same", "checkpointed_loop.py", *words,
        mode="timing", longest_first=True, longest_times=10, memory_probe=(0, 0, 0, 0, 0),
    )  # fmt: skip
    assert faults(seen) == []
    assert seen.losses == same.losses and len(seen.losses) == 10
    steps = seen.rank.memory_steps
    assert [step.plain_blocks for step in steps] == [0, 0, 1, 2, 0]
    assert {step.blocks for step in steps} == {BLOCKS}
    assert {step.micro_batches for step in steps} == {2}
    assert [step.kept_bytes is not None for step in steps] == [False, False, True, True, False]
    assert all(step.place == "host" and step.peak_bytes > 10_000_000 for step in steps)
    assert all(step.resting_bytes and step.resting_bytes <= step.peak_bytes for step in steps)
    kinds = {"wrapper": "torch-wrapper", "transformers": "transformers"}
    checkpointing = seen.rank.checkpointing
    assert checkpointing is not None and checkpointing.kind == kinds.get(style, "torch-function")
    kept = steps[2].kept_bytes
    assert kept == steps[3].kept_bytes
    tokens = ROWS * LONGEST
    if style != "transformers":
        # norm(x) with its two statistics, and the inner layer before and after GELU
        assert kept == tokens * FLOAT * (WIDTH + 2 + 2 * 4 * WIDTH)
    else:
        assert kept is not None and tokens * FLOAT * 10 * WIDTH < kept < tokens * FLOAT * 60 * WIDTH


@pytest.mark.job
@pytest.mark.parametrize(
    ("style", "callee"),
    [("wrapper", "apply_activation"), pytest.param("reentrant", "checkpoint.check", marks=pytest.mark.full)],
)
def test_only_calls_of_checkpoint_itself_are_places_to_edit(tmp_path: Path, style: str, callee: str) -> None:
    """A wrapped layer calls it inside torch: the user's line is a call of the layer."""
    seen = run(tmp_path, "checkpointed_loop.py", "--style", style, mode="profile", steps=2, warmup_steps=1)
    sites = [site for site in seen.observation.sites if site.kind == "checkpoint_enable"]
    assert len(sites) == 1 and callee in sites[0].callee and sites[0].editable


@pytest.mark.job
def test_without_checkpointing_one_layer_tells_what_it_keeps(tmp_path: Path) -> None:
    seen = run(
        tmp_path, "checkpointed_loop.py", "--style", "none",
        mode="timing", longest_first=True, memory_probe=(0, 0, 0),
    )  # fmt: skip
    assert faults(seen) == []
    steps = seen.rank.memory_steps
    assert [(step.blocks, step.plain_blocks, step.kept_bytes) for step in steps] == [(0, 0, None)] * 3
    kept = ROWS * LONGEST * FLOAT * (WIDTH + 2 + 2 * 4 * WIDTH)
    assert [(step.layers, step.layer_bytes) for step in steps] == [(None, None), *[(BLOCKS, kept)] * 2]


def test_a_block_whose_memory_cannot_be_read_gives_no_number() -> None:
    probe = part("block_memory")
    weight = torch.ones(4, 3, requires_grad=True)
    probe._kept.clear()
    with probe._counting(()):
        torch.sparse.mm(torch.eye(4).to_sparse(), weight).sum()
    assert probe._kept == []
    with probe._counting(()):
        (torch.eye(4) @ weight).sum()
    assert probe._kept == [4 * 4 * FLOAT]
    probe._kept.clear()
