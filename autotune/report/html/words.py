"""Numbers and names as the page prints them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import PurePath

from autotune.records.facts import FactValue


def number_of(facts: Mapping[str, FactValue], name: str) -> float | None:
    """A numeric fact; None when it is absent or no number."""
    fact = facts.get(name)
    value = fact.value if fact is not None else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def text_of(facts: Mapping[str, FactValue], name: str) -> str:
    """A fact as text; "" when it is absent."""
    fact = facts.get(name)
    if fact is None or fact.value is None:
        return ""
    return ", ".join(fact.value) if isinstance(fact.value, list) else str(fact.value)


def percent(share: float) -> str:
    """A share of one; small ones keep a digit."""
    value = 100 * share
    if 0 < value < 0.05:
        return "<0.1 %"
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def amount(value: float) -> str:
    """A number with as many digits as it deserves."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.01 else f"{value:.2g}"


def milliseconds(value: float) -> str:
    """A duration in the unit that reads best."""
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    if value >= 1:
        return f"{amount(value)} ms"
    return f"{amount(value * 1000)} µs"


def size(count: int) -> str:
    """Bytes in the unit that reads best."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{amount(count / 1024**power)} {unit}"
    return f"{count} B"


def times(ratio: float) -> str:
    """A ratio."""
    return f"{ratio:.2f}x"


def interval_text(interval: tuple[float, float] | None) -> str:
    """An interval of ratios; "" without one."""
    return f"{interval[0]:.2f} to {interval[1]:.2f}" if interval is not None else ""


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def near_path(path: str, cwd: str) -> str:
    """A path relative to the job's folder when it lies in or beside it."""
    if not path or not cwd or not os.path.isabs(path):
        return path
    relative = os.path.relpath(path, cwd)
    return PurePath(relative).as_posix() if not relative.startswith(os.path.join("..", "..")) else path


def slug(text: str) -> str:
    """A name for an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def kernel_name(name: str, width: int = 90) -> str:
    """The telling part of a kernel name, shortened in the middle."""
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("at::native::", "")
    return text if len(text) <= width else f"{text[: width - 22]} … {text[-18:]}"
