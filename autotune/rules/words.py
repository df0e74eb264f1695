"""How numbers read in messages: percent, milliseconds, GiB, and the unit of a fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _trim(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: Any) -> str:
    """0.473 -> "47 %"; small shares keep one digit."""
    number = _number(value)
    if number is None:
        return str(value)
    share = number * 100
    return f"{share:.0f} %" if abs(share) >= 9.95 or share == 0 else f"{share:.1f} %"


def ms(value: Any) -> str:
    """Milliseconds, or seconds when that reads better."""
    number = _number(value)
    if number is None:
        return str(value)
    if abs(number) >= 10_000:
        return f"{number / 1000:,.1f} s"
    return f"{number:,.0f} ms" if abs(number) >= 100 else f"{_trim(number, 2 if abs(number) < 10 else 1)} ms"


def seconds(value: Any) -> str:
    number = _number(value)
    return str(value) if number is None else ms(number * 1000)


def gib(value: Any) -> str:
    number = _number(value)
    if number is None:
        return str(value)
    return f"{number:.1f} GiB" if abs(number) >= 0.95 else f"{number * 1024:,.0f} MiB"


def count(value: Any) -> str:
    number = _number(value)
    if number is None:
        return str(value)
    return f"{number:,.0f}" if abs(number) >= 100 or number == int(number) else _trim(number, 1)


def times(value: Any) -> str:
    """1.44 -> "1.44x"."""
    number = _number(value)
    return str(value) if number is None else f"{number:.3g}x"


_BY_UNIT: dict[str, Callable[[Any], str]] = {
    "frac": percent,
    "ratio": times,
    "count": count,
    "ms": ms,
    "s": seconds,
    "gib": gib,
}
_SUFFIX = {
    "tokens": "tokens",
    "tokens_per_s": "tokens/s",
    "hours": "h",
    "us": "µs",
    "gib_per_s": "GiB/s",
    "gb_per_s": "GB/s",
    "tflops": "TFLOP/s",
    "mhz": "MHz",
    "celsius": "°C",
    "watt": "W",
}


def with_unit(value: Any, unit: str) -> str:
    """A value as it is printed beside its meaning."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) if value else "none"
    if _number(value) is None:
        return str(value)
    if unit in _BY_UNIT:
        return _BY_UNIT[unit](value)
    suffix = _SUFFIX.get(unit, "")
    return f"{count(value)} {suffix}".rstrip() if suffix else _trim(float(value), 3)


FILTERS: dict[str, Callable[..., str]] = {
    "percent": percent,
    "ms": ms,
    "seconds": seconds,
    "gib": gib,
    "count": count,
    "times": times,
}
