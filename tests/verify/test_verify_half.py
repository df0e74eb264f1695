"""Half precision judged against float32: right replacements pass, wrong ones fail, unknown is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.observe.launch import launch
from autotune.records.verdict import Verdict
from autotune.verify.arm import Arm, VerifyOptions
from autotune.verify.trial import run_comparison
from autotune.verify.verdict import judge_parity, recompute

JOB = Path(__file__).parent / "jobs" / "half.py"
pytestmark = pytest.mark.job


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Launches of the unchanged job are made once."""
    return tmp_path_factory.mktemp("half")


def compare(folder: Path, *flags: str, half: str = "autocast", in_float32: tuple[str, ...] = ()) -> Verdict:
    """`in_float32`: what befalls the float32 launch only; the others are those of a plain comparison."""
    head = (sys.executable,)
    if half == "fsdp2":
        head = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")  # type: ignore[assignment]
    command = (*head, str(JOB), "--half", half)
    arms = [
        Arm(name=name, command=(*command, *own), cwd=JOB.parent)
        for name, own in (("before", ()), ("after", flags))
    ]
    options = VerifyOptions(
        tier="token-exact" if "packed" in flags else "numeric",
        parity_steps=5,
        max_pairs=0,
        shared_folder=folder / "shared",
    )
    if in_float32:
        compare(folder, *flags, half=half)
    return run_comparison(
        arms,
        folder=folder / "-".join([*flags, *in_float32]),
        options=options,
        launch=launch,
        reference=Arm(name="before", command=(*command, *in_float32), cwd=JOB.parent) if in_float32 else None,
    )


HALVES = [
    "autocast",
    pytest.param("parameters", marks=pytest.mark.full),
    pytest.param("fsdp2", marks=pytest.mark.full),
]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--attention", "sdpa"), marks=pytest.mark.full),
        pytest.param(("--layout", "packed", "--attention", "sdpa"), id="packed"),
    ],
)
def test_a_right_replacement_is_as_near_to_float32(folder: Path, half: str, flags: tuple[str, ...]) -> None:
    verdict = compare(folder / half, *flags, half=half)
    assert verdict.parity.outcome == "equal", verdict.parity.sentence
    assert verdict.parity.reference == "used" and "from float32" in verdict.parity.sentence
    assert [t.purpose for t in verdict.trials] == ["parity", "parity", "reference"]
    assert ("no gradient crosses" in verdict.parity.sentence) == ("packed" in flags and half != "fsdp2")
    assert recompute(verdict) == verdict


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    "flags",
    [
        ("--attention", "scaled-dq"),
        pytest.param(("--attention", "dropped-dk"), marks=pytest.mark.full),
        pytest.param(("--lost-bias",), marks=pytest.mark.full),
        pytest.param(("--attention", "wrong-mask"), marks=pytest.mark.full),
    ],
)
def test_a_wrong_backward_is_refused_also_one_that_wide_limits_let_through(
    folder: Path, half: str, flags: tuple[str, ...]
) -> None:
    verdict = compare(folder / half, *flags, half=half)
    assert verdict.parity.outcome == "broken", verdict.parity.sentence
    assert "float32" in verdict.parity.sentence
    without = [
        e.model_copy(update={"ranks": [rank.model_copy(update={"modules": []}) for rank in e.ranks]})
        for e in verdict.parity_evidence
        if not e.full_precision
    ]
    wide = judge_parity(without, verdict.settings, [arm.name for arm in verdict.arms], "left out")
    if flags[-1] in ("scaled-dq", "dropped-dk"):
        assert wide.outcome == "equal" and "left out" in wide.sentence


def test_a_float32_launch_that_fails_is_said(folder: Path) -> None:
    verdict = compare(folder / "autocast", "--attention", "sdpa", in_float32=("--fail-in-float32",))
    assert verdict.parity.outcome == "equal" and verdict.parity.reference == "unknown"
    assert "4 kinds of modules on captured inputs" in verdict.parity.sentence
    assert "reference unknown (out of memory" in verdict.parity.sentence
    assert recompute(verdict) == verdict


@pytest.mark.parametrize("half", ["autocast", pytest.param("fsdp2", marks=pytest.mark.full)])
def test_where_the_states_do_not_fit_in_float32_the_first_gradient_serves(folder: Path, half: str) -> None:
    verdict = compare(folder / half, "--attention", "sdpa", half=half, in_float32=("--no-room-for-states",))
    assert verdict.parity.outcome == "equal" and verdict.parity.reference == "used", verdict.parity.sentence
    assert [len(t.steps) for t in verdict.trials if t.purpose == "reference"][-1] == 1
    assert recompute(verdict) == verdict


@pytest.mark.parametrize("half", ["autocast", pytest.param("fsdp2", marks=pytest.mark.full)])
def test_without_a_float32_launch_single_modules_decide(folder: Path, half: str) -> None:
    """Within the wide limits of half precision, but not on the inputs of one block."""
    verdict = compare(folder / half, "--attention", "scaled-dq", half=half, in_float32=("--fail-in-float32",))
    assert verdict.parity.outcome == "broken" and verdict.parity.reference == "unknown"
    assert "blocks.0" in verdict.parity.sentence and "gradient of query" in verdict.parity.sentence
    assert [c.name for c in verdict.parity.checks if c.outcome == "fail"] == ["modules against float32"]
    assert recompute(verdict) == verdict


def test_a_backward_that_mixes_packed_examples_is_seen_in_full_precision_too(folder: Path) -> None:
    flags = ("--layout", "packed", "--attention", "mixing-backward")
    verdict = compare(folder / "none", *flags, half="none")
    assert verdict.parity.outcome == "broken"
    assert "gradients of other examples reach its tokens" in verdict.parity.sentence


@pytest.mark.full
def test_a_right_packing_in_full_precision_needs_no_float32_launch(folder: Path) -> None:
    right = compare(folder / "none", "--layout", "packed", "--attention", "sdpa", half="none")
    assert right.parity.outcome == "equal" and "no gradient crosses" in right.parity.sentence
    assert right.parity.reference == "not-needed"
