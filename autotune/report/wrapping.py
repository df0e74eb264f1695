"""Text of at most 80 columns, durations and money as people write them."""

from __future__ import annotations

import re
import textwrap

WIDTH = 80
_UNIT_AFTER_NUMBER = re.compile(r"(?<=\d) (?=(?:%|ms|us|µs|s|min|h|MiB|GiB)(?![\w-]))")
_HELD = "\ue000"  # stands for a space at which no line ends


def wrap(text: str, hang: int = 0) -> list[str]:
    """Lines of at most 80 columns; words, paths and rule ids are never broken, nor a number from its unit."""
    lines = textwrap.wrap(
        _UNIT_AFTER_NUMBER.sub(_HELD, text),
        WIDTH,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_HELD, " ") for line in lines] or [""]


def duration(hours: float) -> str:
    """Hours as "26 h 05 min", "16 min" or "40 s"."""
    minutes = round(hours * 60)
    if hours * 3600 < 59.5:
        return f"{hours * 3600:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def durations(*hours: float) -> list[str]:
    """Times that stand beside one another, in one unit as far as all of them can be read in it."""
    shortest, longest = 60 * min(hours), 60 * max(hours)  # minutes
    if shortest < 2 and longest < 10:
        return [f"{3600 * each:.0f} s" for each in hours]
    if shortest < 60 and longest < 600:
        return [f"{60 * each:.{1 if shortest < 2 else 0}f} min" for each in hours]
    return [duration(each) for each in hours]


def money(amount: float) -> str:
    """An amount without a currency: the price was given without one."""
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:,.2f}"
