"""Sketches of gradients: their lengths, and how far two are apart.

A sketch is the norm of a parameter's gradient and a few sums over it (see the probe). Sums of two gradients
subtract, so the length of the difference is known although neither gradient is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")

Sketch = dict[str, list[float]]


def plain_names(sketch: Sketch) -> Sketch:
    """Without the wrappers of compile, DDP, FSDP and checkpointing in the names."""
    return {_WRAPPERS.sub("", name): values for name, values in sketch.items() if values}


def missing(first: Sketch, other: Sketch) -> str:
    """Parameters that get a gradient in one arm only."""

    def learns(sketch: Sketch) -> set[str]:
        return {name for name, values in sketch.items() if any(value != 0 for value in values)}

    lost, new = sorted(learns(first) - learns(other)), sorted(learns(other) - learns(first))
    if lost:
        return f"{len(lost)} parameters no longer get a gradient, e.g. {lost[0]}"
    if new:
        return f"{len(new)} parameters now get a gradient, e.g. {new[0]}"
    return ""


def difference(first: Sketch, other: Sketch, names: Sequence[str]) -> float:
    """Of all parameters together, relative to the gradient."""
    total = math.sqrt(sum(length(first[name]) ** 2 for name in names))
    off = math.sqrt(sum(apart(first[name], other[name]) ** 2 for name in names))
    return off / total if total else 0.0


def length(sketch: Sequence[float]) -> float:
    """Estimate of the gradient's norm (times a factor all sketches of a launch share)."""
    return math.sqrt(sum(value * value for value in directions(sketch)))


def apart(first: Sequence[float], other: Sequence[float]) -> float:
    """Length of the difference; of two sketches made in other ways only the lengths compare."""
    left, right = directions(first), directions(other)
    if len(left) != len(right):
        return abs(length(first) - length(other))
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(left, right, strict=True)))


def directions(sketch: Sequence[float]) -> Sequence[float]:
    """The buckets; the norm alone where there are none."""
    return sketch[1:] if len(sketch) > 1 else sketch
