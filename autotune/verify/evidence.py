"""From a parity launch to what is needed to judge it."""

from __future__ import annotations

from typing import Literal

from autotune.records.observation import Observation, RankObservation
from autotune.records.parity import ParityRecord, ParityStep
from autotune.records.verdict import ParityEvidence
from autotune.verify.sketches import plain_names

KEPT_SKETCHES = 3  # first steps whose gradient sketches are kept: later ones differ by divergence anyway
HALF = ("bfloat16", "float16", "bf16", "fp16", "half")


def parity_evidence(
    observation: Observation,
    *,
    label: str,
    arm: str,
    seed: int | None,
    deterministic: bool = False,
    logged: dict[str, float] | None = None,
    full_precision: bool = False,
) -> ParityEvidence:
    """What the ranks recorded, trimmed to what `compare` reads."""
    ranks = sorted((r for r in observation.ranks if r.parity is not None), key=lambda r: r.rank)
    first = ranks[0] if ranks else None
    return ParityEvidence(
        label=label,
        arm=arm,
        seed=seed,
        deterministic=deterministic,
        ranks=_trimmed([r.parity for r in ranks if r.parity is not None]),
        expected_ranks=observation.expected_ranks,
        precision="fp32" if full_precision else _precision(first) if first else "fp32",
        full_precision=full_precision,
        experts=bool(first and first.model and first.model.experts),
        packed=_packed(ranks),
        real_tokens=_real_tokens(ranks),
        logged=logged or {},
        contributions=_contributions([r.parity for r in ranks if r.parity is not None]),
    )


def _contributions(records: list[ParityRecord]) -> dict[int, dict[str, list[float]]]:
    """The ranks' own gradients of the first steps, added up; empty where a rank did not see its own."""
    found: dict[int, dict[str, list[float]]] = {}
    if len(records) < 2 or any(record.reduction_unknown for record in records):
        return found
    for step in records[0].steps[:KEPT_SKETCHES]:
        rows = [s.own_gradient for r in records for s in r.steps if s.index == step.index]
        if len(rows) < len(records) or not all(rows):
            continue
        total: dict[str, list[float]] = {}
        for row in rows:
            for name, sums in row.items():
                known = total.get(name, [0.0] * len(sums))
                total[name] = [a + b for a, b in zip(known, sums, strict=True)]
        found[step.index] = total
    return found


def _trimmed(records: list[ParityRecord]) -> list[ParityRecord]:
    """Sketches of the first steps only, and of other ranks only where they differ from the first rank's."""
    found = []
    for place, record in enumerate(records):
        steps = []
        for number, step in enumerate(record.steps):
            same = place > 0 and number < len(records[0].steps)
            repeated = same and step.gradient_sketch == records[0].steps[number].gradient_sketch
            keep = number < KEPT_SKETCHES and not repeated
            names = ["own_gradient"] if keep else ["own_gradient", "gradient_sketch"]
            steps.append(step.model_copy(update={name: {} for name in names}))
        found.append(record.model_copy(update={"steps": steps}))
    return found


def sketches_of(arm: ParityEvidence, index: int) -> list[dict[str, list[float]]]:
    """The gradient sketch of the step on each rank; a rank that kept none had the first rank's."""
    steps = steps_of(arm, index)
    return [step.gradient_sketch or steps[0].gradient_sketch for step in steps]


def _precision(rank: RankObservation) -> Literal["fp64", "fp32", "tf32", "half"]:
    """The coarsest arithmetic the forward runs in."""
    dtypes = [name.removeprefix("torch.") for name in (rank.model.parameter_dtypes if rank.model else {})]
    autocast = rank.forward.autocast_dtype if rank.forward else "none"
    sharded = (rank.sharding.param_dtype if rank.sharding else None) or ""
    if rank.parity is not None and rank.parity.half_arithmetic:
        return "half"
    if any(
        name in HALF for name in [*dtypes, autocast.removeprefix("torch."), sharded.removeprefix("torch.")]
    ):
        return "half"
    if dtypes and all(name == "float64" for name in dtypes):
        return "fp64"
    flags = rank.flags if rank.environment.device_type == "cuda" else None
    if flags is not None and (flags.tf32_allowed or flags.matmul_precision in ("high", "medium")):
        return "tf32"
    return "fp32"


def _packed(ranks: list[RankObservation]) -> bool | None:
    """Whether rows hold several examples; None when nothing tells."""
    told: list[bool] = []
    for rank in ranks:
        if rank.parity is not None and rank.parity.isolation:
            return True
        rows = {step.index: sum(shape[0] for shape in step.shapes if len(shape) > 1) for step in rank.steps}
        for step in rank.parity.steps if rank.parity else []:
            if step.examples is not None and rows.get(step.index):
                told.append(step.examples > rows[step.index])
    if told:
        return any(told)
    # Positions that start again may also be padding on the left, so they count only where nothing else tells.
    forwards = [rank.forward for rank in ranks if rank.forward is not None]
    return any(f.position_ids_restart or f.boundary_arguments for f in forwards) if forwards else None


def _real_tokens(ranks: list[RankObservation]) -> list[int | None]:
    """Real tokens of each parity step, summed over ranks."""
    if not ranks or ranks[0].parity is None:
        return []
    tables = [{step.index: step.real_tokens for step in rank.steps} for rank in ranks]
    found: list[int | None] = []
    for step in ranks[0].parity.steps:
        values = [table.get(step.index) for table in tables]
        known = [value for value in values if value is not None]
        found.append(sum(known) if len(known) == len(values) else None)
    return found


def common_steps(*arms: ParityEvidence) -> list[int]:
    """Indexes of the steps every rank of every arm recorded, in order."""
    sets = [{step.index for step in rank.steps} for arm in arms for rank in arm.ranks]
    return sorted(set.intersection(*sets)) if sets else []


def steps_of(arm: ParityEvidence, index: int) -> list[ParityStep]:
    """The step with this index, of each rank."""
    return [next(step for step in rank.steps if step.index == index) for rank in arm.ranks]


def same_training(one: ParityEvidence, other: ParityEvidence) -> bool:
    """Every loss, gradient, example and weight that was recorded is equal to the last bit, on every rank."""
    if len(one.ranks) != len(other.ranks) or one.seed != other.seed:
        return False
    return all(_told(a) == _told(b) for a, b in zip(one.ranks, other.ranks, strict=True))


def _told(rank: ParityRecord) -> tuple[object, ...]:
    steps = [(s.index, s.losses, s.loss_weights, s.grad_norm, s.examples_digest) for s in rank.steps]
    sketches = [plain_names(s.gradient_sketch) for s in rank.steps]
    return steps, sketches, rank.initial_weights_digest, rank.final_weights_digest
