"""Turn a trace's time stamps into exact whole nanoseconds.

A double holds nanoseconds only up to 2**43 microseconds (102 days); beyond that the decimal text decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]

EXACT_US = float(1 << 43)  # below it half an ulp is under half a nanosecond
LIMIT_NS = 1 << 61  # larger stamps are clipped: sums of two must stay inside int64
_NS_EPOCH = 10**17  # integer stamps above this are epoch nanoseconds, not microseconds


def nanosecond_unit(stamps: Sequence[int | float]) -> bool | None:
    """Whether integer stamps count nanoseconds since the epoch, not microseconds; None when all are 0."""
    told = [value for value in stamps if value][:1000]  # metadata often has the time 0
    if not told:
        return None
    return all(type(value) is int for value in told) and sorted(told)[len(told) // 2] > _NS_EPOCH


def to_ns(stamps: Sequence[int | float], *, in_ns: bool = False) -> Ns | None:
    """Whole nanoseconds, or None when doubles cannot hold them and the text must be read again."""
    if not stamps:
        return np.zeros(0, dtype=np.int64)
    kinds = set(map(type, stamps))
    factor = 1 if in_ns else 1000
    if kinds == {int}:
        return _clip_int(stamps, factor)
    values = np.array(stamps, dtype=np.float64)
    if in_ns or not np.isfinite(values).all() or np.abs(values).max() >= EXACT_US:
        return None
    whole = np.floor(values)
    ns = whole.astype(np.int64) * 1000
    ns += np.rint((values - whole) * 1000.0).astype(np.int64)
    return ns


def _clip_int(stamps: Sequence[int | float], factor: int) -> Ns:
    try:
        values = np.array(stamps, dtype=np.int64)
    except OverflowError:
        bound = LIMIT_NS // factor
        values = np.array([min(max(int(value), -bound), bound) for value in stamps], dtype=np.int64)
    bound = LIMIT_NS // factor
    if values.size and (values.max() > bound or values.min() < -bound):
        values = np.clip(values, -bound, bound)
    return values * factor


def text_to_ns(texts: Sequence[bytes], *, in_ns: bool = False) -> tuple[Ns, int]:
    """Nanoseconds from decimal text, and how many texts were no number (they become 0)."""
    result = np.zeros(len(texts), dtype=np.int64)
    bad = 0
    for index, text in enumerate(texts):
        try:
            result[index] = _one_text(text, in_ns)
        except (InvalidOperation, ValueError, OverflowError):
            bad += 1
    return result, bad


def _one_text(text: bytes, in_ns: bool) -> int:
    clean = text.strip(b'" \t\r\n')
    whole, dot, fraction = clean.partition(b".")
    digits = whole[1:] if whole[:1] == b"-" else whole
    if not in_ns and digits.isdigit() and (not dot or (len(fraction) == 3 and fraction.isdigit())):
        value = int(whole) * 1000
        part = int(fraction) if dot else 0
        value += -part if whole[:1] == b"-" else part
    else:
        number = Decimal(clean.decode("ascii"))
        value = int((number if in_ns else number * 1000).to_integral_value())
    return min(max(value, -LIMIT_NS), LIMIT_NS)
