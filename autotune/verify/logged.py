"""The losses the job itself printed: a change of logging must not attach a value to another step."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from statistics import fmean

from autotune.records.verdict import ParityCheck, ParityEvidence
from autotune.verify.tolerance import FLOORS

_LOSS = re.compile(
    r"\b(?:train_?)?loss['\"]?\s*[:=]?\s*['\"]?(-?\d+\.\d+(?:e[+-]?\d+)?|nan|inf)", re.IGNORECASE
)
_STEP = re.compile(r"\b(?:step|iter|iteration|it|batch)['\"]?\s*[:=#]?\s*['\"]?(\d+)", re.IGNORECASE)
_EPOCH = re.compile(r"\bepoch['\"]?\s*[:=]\s*['\"]?(\d+\.\d+)", re.IGNORECASE)
_MOST_LINES = 20_000
_MOST_CHARACTERS = 4_000
_GRAIN = 0.51  # of the last printed digit


def read_logged_losses(log: Path) -> dict[str, float]:
    """Printed losses by the step (or fraction of an epoch) named in the same line; empty when unclear."""
    found: dict[str, float] = {}
    try:
        with open(log, encoding="utf-8", errors="replace") as lines:
            # A progress bar may never end its line.
            for line in islice(iter(lambda: lines.readline(_MOST_CHARACTERS), ""), _MOST_LINES):
                loss, step = _LOSS.search(line), _STEP.search(line) or _EPOCH.search(line)
                if loss is None or step is None:
                    continue
                key = step.group(1)
                if key in found:  # several ranks, epochs or losses: nothing can be matched
                    return {}
                found[key] = float(loss.group(1))
    except OSError:
        return {}
    return found


def check_logged(baseline: ParityEvidence, candidate: ParityEvidence) -> ParityCheck:
    """Values both arms printed for the same step agree; a shift by a step is named."""
    name = "logged loss"
    common = [key for key in baseline.logged if key in candidate.logged]
    if len(common) < 3:
        return ParityCheck(name=name, outcome="not-applicable", detail="no comparable lines in the output")
    room = 10 * FLOORS[baseline.precision].loss
    wrong = [k for k in common if not _close(baseline.logged[k], candidate.logged[k], room)]
    if not wrong:
        return ParityCheck(name=name, outcome="pass", detail=f"the same for {len(common)} printed steps")
    keys = list(baseline.logged)
    for shift in (1, 2, -1, -2):
        moved = [
            (k, keys[i - shift]) for i, k in enumerate(keys) if 0 <= i - shift < len(keys) and k in common
        ]
        if len(moved) >= 3 and all(
            _close(baseline.logged[earlier], candidate.logged[k], room) for k, earlier in moved
        ):
            return ParityCheck(
                name=name, outcome="fail", detail=f"printed losses belong to a step {abs(shift)} away"
            )
    place = {key: number for number, key in enumerate(keys)}  # printed numbers begin at 0, 1 or elsewhere
    own = [_loss(baseline, place[key]) for key in common]
    if all(
        loss is not None and _close(loss, baseline.logged[k], room)
        for k, loss in zip(common, own, strict=True)
    ):
        pairs = [(candidate.logged[key], _loss(candidate, place[key])) for key in common]
        ratios = [shown / loss for shown, loss in pairs if loss]
        if len(ratios) == len(common) and all(abs(ratio - 1) > room for ratio in ratios):
            detail = f"what is printed is no longer the loss of the step ({ratios[0]:.3g} times it)"
            return ParityCheck(name=name, outcome="fail", detail=detail)
    # Other differences are what the loss check is for: printed values may be averages over several steps.
    return ParityCheck(name=name, outcome="not-applicable", detail="the arms print different quantities")


def _loss(arm: ParityEvidence, place: int) -> float | None:
    """The recorded loss of the first rank's step at this place."""
    steps = arm.ranks[0].steps
    return fmean(steps[place].losses) if place < len(steps) and steps[place].losses else None


def _close(first: float, second: float, room: float) -> bool:
    if first == second:
        return True
    digits = max(_decimals(first), _decimals(second))
    return bool(abs(first - second) <= max(room * abs(first), _GRAIN * 10.0**-digits))


def _decimals(value: float) -> int:
    text = repr(value)
    return len(text.partition(".")[2]) if "e" not in text else 8
