"""Thirty-two ways a faster job goes wrong, each planted in a real small job, each with a harmless twin.

The verifier must reject every planted one and accept every twin. Launches of a baseline are shared.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from autotune.observe.launch import launch
from autotune.records.observation import Observation
from autotune.records.terms import Tier
from autotune.records.verdict import Verdict
from autotune.verify.arm import Arm, LiveFindings, VerifyOptions
from autotune.verify.trial import run_comparison

JOB = Path(__file__).parent / "job.py"
Variant = Literal["bug", "twin"]

pytestmark = [pytest.mark.job, pytest.mark.full]


@dataclass(frozen=True)
class Hazard:
    """How one hazard is compared."""

    name: str
    title: str
    tier: Tier
    rows: str = ""  # of the candidate; the baseline is padded
    base: bool = False  # a plant of its own belongs to both arms
    ranks: int = 1


HAZARDS = [
    Hazard("X01", "packing leaks through recurrent state", "token-exact", rows="packed"),
    Hazard("X02", "packing leaks through attention", "token-exact", rows="packed"),
    Hazard("X03", "labels shift across boundaries", "token-exact", rows="packed"),
    Hazard("X04", "loss normalisation changes", "numeric"),
    Hazard("X05", "examples per optimizer step change", "token-exact", rows="packed"),
    Hazard("X06", "data cut by the packer", "token-exact", rows="packed"),
    Hazard("X07", "positions do not start again", "token-exact", rows="packed"),
    Hazard("X08", "padded tail of a packed row", "token-exact", rows="packed"),
    Hazard("X09", "padding on the left", "token-exact", base=True),
    Hazard("X10", "causality lost", "numeric"),
    Hazard("X11", "forward right, backward wrong", "numeric"),
    Hazard("X12", "no gradient at all", "numeric"),
    Hazard("X13", "dropout drawn from other numbers", "bitwise", base=True),
    Hazard("X14", "reduction over ranks forgotten", "numeric", ranks=2),
    Hazard("X15", "gradients accumulate in bfloat16", "numeric"),
    Hazard("X16", "master weights in bfloat16", "numeric"),
    Hazard("X17", "optimizer state lost on reload", "numeric"),
    Hazard("X18", "tied weights broken", "numeric"),
    Hazard("X19", "fused loss drops a term", "numeric", base=True),
    Hazard("X20", "micro-batch of ignored labels only", "token-exact", base=True),
    Hazard("X21", "recomputation sees another state", "numeric"),
    Hazard("X22", "specialised on the first shape", "numeric"),
    Hazard("X23", "float8 diverges", "statistical"),
    Hazard("X24", "ten-bit products in sensitive places", "numeric"),
    Hazard("X25", "loader repeats examples", "bitwise", base=True),
    Hazard("X26", "logged values shifted by a step", "bitwise"),
    Hazard("X27", "a baseline that never repeats", "numeric", base=True),
    Hazard("X28", "the loss improves by a bug", "numeric"),
]


def arm(name: str, *flags: str, ranks: int = 1, **changes: object) -> Arm:
    head: tuple[str, ...] = (sys.executable,)
    if ranks > 1:
        head = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks))
    command = (*head, str(JOB), *flags)
    return Arm(name=name, command=command, cwd=JOB.parent, warmed=True, **changes)  # type: ignore[arg-type]


def compare(folder: Path, before: Arm, after: Arm, tier: Tier | None, **options: object) -> Verdict:
    settings = {"parity_steps": 14, "max_pairs": 0, "steps": 16, "warmup_steps": 1, **options}
    return run_comparison(
        [before, after],
        folder=folder,
        options=VerifyOptions(tier=tier, **settings),  # type: ignore[arg-type]
        launch=launch,
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all comparisons: launches of the same command are made once."""
    return tmp_path_factory.mktemp("hazards")


@pytest.mark.parametrize("variant", ["bug", "twin"])
@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.name)
def test_training_hazard(shared: Path, hazard: Hazard, variant: Variant) -> None:
    base = ("--baseline", f"{hazard.name}-base") if hazard.base else ()
    rows = ("--rows", hazard.rows) if hazard.rows else ()
    if hazard.tier == "statistical":
        base = (*base, "--any-seed")
    before = arm("baseline", *base, ranks=hazard.ranks)
    after = arm(variant, *base, *rows, "--plant", f"{hazard.name}-{variant}", ranks=hazard.ranks)
    result = compare(shared, before, after, hazard.tier).parity
    if variant == "twin":
        assert result.outcome == "equal", f"{hazard.title}: {result.sentence}"
    else:
        assert result.outcome in ("broken", "undecided"), f"{hazard.title}: {result.sentence}"


def fused_is_live(seen: Observation, folder: Path) -> LiveFindings:
    """What the rule of the fused optimizer asks of a fresh profile."""
    found = [optimizer.implementation for rank in seen.ranks for optimizer in rank.optimizers]
    faults = tuple(f"the optimizer is still {name}" for name in found if name != "fused")
    return LiveFindings(
        faults=faults or (() if found else ("no optimizer seen",)), checked=("fused optimizer",)
    )


@pytest.mark.parametrize("variant", ["bug", "twin"])
def test_x29_a_fallback_after_the_patch(shared: Path, variant: Variant) -> None:
    after = arm(variant, "--plant", f"X29-{variant}", live_check=fused_is_live)
    verdict = compare(shared, arm("baseline"), after, "numeric")
    assert verdict.parity.outcome == "equal"  # training is fine: only the profile tells
    if variant == "bug":
        assert verdict.outcome == "patch-not-live", verdict.sentence
    else:
        assert verdict.outcome != "patch-not-live", verdict.sentence


@pytest.mark.parametrize("variant", ["bug", "twin"])
def test_x30_a_speed_claim_from_less_work(tmp_path: Path, variant: Variant) -> None:
    """Half the work in half the time is not faster; the same work without a needless wait is."""
    before = arm("baseline", "--sleep-ms", "60")
    flags = {"bug": ("--sleep-ms", "30", "--plant", "X30-bug"), "twin": ("--sleep-ms", "0")}
    verdict = compare(tmp_path, before, arm(variant, *flags[variant]), None, max_pairs=4, steps=30)
    if variant == "bug":
        assert verdict.outcome != "faster", verdict.sentence
        assert verdict.unit == "useful tokens/s"
    else:
        assert verdict.outcome == "faster", verdict.sentence


@pytest.mark.parametrize("variant", ["bug", "twin"])
def test_x32_the_patch_runs_elsewhere_or_not_at_all(tmp_path: Path, variant: Variant) -> None:
    """The edited copy must be what every rank ran; here the command still starts the original."""
    from hashlib import sha256

    edited = tmp_path / "job_autotuned.py"
    edited.write_text(JOB.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    for source in JOB.parent.glob("*.py"):
        (tmp_path / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    digest = sha256(edited.read_bytes()).hexdigest()
    fingerprint = sha256(f"{digest}\n".encode()).hexdigest()
    script = JOB if variant == "bug" else edited
    after = Arm(
        name=variant,
        command=(sys.executable, str(script)),
        cwd=JOB.parent,
        fingerprint=fingerprint,
        fingerprint_files=(edited,),
    )
    verdict = compare(tmp_path / "runs", arm("baseline"), after, "bitwise")
    if variant == "bug":
        assert verdict.outcome == "patch-not-live", verdict.sentence
    else:
        assert verdict.parity.outcome == "equal" and not any(c.faults for c in verdict.live), verdict.sentence
