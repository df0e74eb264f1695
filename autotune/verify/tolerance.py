"""How far two launches may differ and still train the same: learned from the baseline against itself.

A constant tolerance passes or fails for the wrong reason. The floors below hold where the baseline repeats
itself exactly; they follow what a reordered sum does to a loss and its gradient in each precision.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp64", "fp32", "tf32", "half"]

NOISE_FACTOR = 3.0
GRADIENT_NOISE_FACTOR = 5.0  # gradients are seen in few steps and few directions
_LOOK_AHEAD = 2
_LEAST_SAMPLES = 8  # one difference is no estimate of a noise
MOST_LOSS_NOISE = 0.01  # a baseline that strays further from itself cannot show that a change is harmless
MOST_GRADIENT_NOISE = 0.25


@dataclass(frozen=True, slots=True)
class Floor:
    """Least tolerances of one precision, relative unless said; `growth` is added per step of divergence."""

    loss: float
    loss_growth: float
    loss_absolute: float
    grad_norm: float
    gradient: float
    # One parameter may stray this many times further than all of them together; parameters whose gradient is
    # below this share of the median one are rounding.
    parameter_room: float = 2.0
    negligible: float = 1e-3


FLOORS: dict[Precision, Floor] = {
    "fp64": Floor(1e-9, 2e-10, 1e-10, 1e-7, 1e-6),
    "fp32": Floor(1e-5, 2e-6, 1e-6, 2e-4, 2e-4),
    "tf32": Floor(5e-4, 5e-5, 1e-5, 5e-3, 2e-2),
    # Used alone only where the job could not be run in float32 (see reference.py): wide enough for any two
    # right backwards that round in other places, so small faults pass.
    "half": Floor(2e-3, 1e-4, 5e-4, 2e-2, 0.15, parameter_room=4.0, negligible=1e-2),
}


def loss_tolerances(
    baseline: Sequence[float], repeat: Sequence[float], precision: Precision
) -> tuple[list[float], list[float]]:
    """Relative tolerance and noise of each step's loss."""
    floor = FLOORS[precision]
    coarse = precision == "half" and all(is_bfloat16(value) for value in baseline)
    grain = 2**-8 if coarse else 0.0
    scales = [max(abs(first), 1e-12) for first in baseline]
    noises = [abs(a - b) / scale for a, b, scale in zip(baseline, repeat, scales, strict=True)]
    tolerances = [
        max(
            NOISE_FACTOR * noise_until(noises, place),
            max(floor.loss + floor.loss_growth * place, floor.loss_absolute / scale) + grain,
        )
        for place, scale in enumerate(scales)
    ]
    return tolerances, noises


def noise_until(noises: Sequence[float], place: int) -> float:
    """The largest noise up to a step, over enough steps to be an estimate.

    Two launches may agree by chance in any one step; noise that grows with divergence must not open the first
    steps to everything.
    """
    return max(noises[: max(place + 1 + _LOOK_AHEAD, _LEAST_SAMPLES)], default=0.0)


def is_bfloat16(value: float) -> bool:
    """The value has no more digits than bfloat16 holds: the job computes its loss in it."""
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return False
    return struct.unpack("<f", struct.pack("<f", value))[0] == value and bits & 0xFFFF == 0
