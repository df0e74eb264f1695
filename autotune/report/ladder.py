"""The ladder of an optimize run as text: what each kept change brought and what was dropped."""

from __future__ import annotations

import textwrap

from autotune.records.ladder import Ladder, Rung
from autotune.report.wrapping import durations, money, wrap

_UNFINISHED = {  # by the state of a loop that ended early, when nothing was kept until then
    "running": "Nothing is proven yet: the loop is not at its end.",
    "interrupted": "Nothing is proven yet: the loop was interrupted.",
    "failed": "Nothing is proven: the loop stopped at a fault.",
    "budget": "Nothing was proven within the budget.",
}


def render_ladder(ladder: Ladder, *, price_per_hour: float | None = None) -> str:
    """A table of rungs and the reasons behind it, at most 80 columns; `price_per_hour` is that of the job."""
    lines = [headline(ladder), ""]
    unit_tokens = all(rung.useful_tokens_per_s is not None for rung in ladder.rungs)
    speed = "useful tok/s" if unit_tokens else "ms/step"
    lines.append(f"{'':<4}{'rung':<32}{speed:>13}{'step by step':>19}{'in all':>9}")
    for number, rung in enumerate(ladder.rungs):
        lines += _row(number, rung, unit_tokens)
    lines += _parity(ladder.rungs[1:])
    for rung in ladder.rungs[1:]:
        lines += _longest_batch(rung)
    first, last = ladder.rungs[0], ladder.rungs[-1]
    if last is not first:
        lines += _epoch(first, last)
    if first.projected_hours is not None and last.projected_hours is not None and last is not first:
        before, after = first.projected_hours, last.projected_hours
        lines += ["", f"whole job: {' -> '.join(durations(before, after))} projected"]
        if price_per_hour is not None:
            costs = f"{money(before * price_per_hour)} -> {money(after * price_per_hour)}"
            lines.append(f"cost: {costs} at {price_per_hour:g} an hour for all GPUs")
    lines += beyond_the_usual(ladder)
    for heading, entries in left_out(ladder).items():
        lines += ["", f"{heading}:"]
        for names, text in entries:
            lines += wrap(f"  {names}: {text}", 4)
    if ladder.advice:
        lines += ["", "not tried, for you to decide:"]
        for line in ladder.advice:
            lines += wrap(f"  {line}", 4)
    if ladder.notes:
        lines += ["", "notes:"]
        for note in ladder.notes:
            lines += wrap(f"  {note}", 4)
    trials = f"{ladder.trials} trial{'s' if ladder.trials != 1 else ''}"
    lines += [
        "",
        *wrap(f"stopped: {ladder.stop_reason}; {trials}, {ladder.minutes:.1f} minutes", 2),
    ]
    if ladder.go_on:
        lines.append(f"to go on: {ladder.go_on}")
    return "\n".join(lines)


def left_out(ladder: Ladder) -> dict[str, list[tuple[str, str]]]:
    """What was not kept, not decided and not tried: rules and reason, each change once.

    What is for a person to decide stands there with more words, so it is not said here.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in ladder.dropped:
        advised = all(any(f"({rule};" in line for line in ladder.advice) for rule in entry.rules)
        if entry.how == "not-tried" and advised:
            continue
        text = f"{entry.ratio:.2f}x measured; {entry.reason}" if entry.ratio is not None else entry.reason
        found.setdefault(entry.how.replace("-", " "), []).append((", ".join(entry.rules), text))
    return found


def _parity(rungs: list[Rung]) -> list[str]:
    """How each rung was proven, once where several were proven together; the last may speak of the whole."""
    told = {rung.parity: number for number, rung in reversed(list(enumerate(rungs, 1))) if rung.parity}
    lines: list[str] = []
    for text, number in sorted(told.items(), key=lambda item: item[1]):
        which = f" with rung {number}" if len(told) > 1 else ""
        lines += ["", *wrap(f"training unchanged{which}: {text}", 2)]
    return lines


def _longest_batch(rung: Rung) -> list[str]:
    """What a memory plan expected of the longest batch, and what it took."""
    if rung.predicted_peak_gib is None or rung.longest_peak_gib is None:
        return []
    seen, expected = rung.longest_peak_gib, rung.predicted_peak_gib
    return ["", *wrap(f"memory, longest batch: {seen:.2f} GiB measured, {expected:.2f} GiB predicted", 2)]


def _epoch(first: Rung, last: Rung) -> list[str]:
    """Batches and optimizer steps before and after; a number that is not known is said to be so."""
    if not first.batches_per_epoch or not first.optimizer_steps_per_epoch:
        return []

    def count(value: float | None) -> str:
        return f"{value:,.0f}" if value is not None else "unknown"

    before, after = (
        f"{count(rung.batches_per_epoch)} batches and {count(rung.optimizer_steps_per_epoch)} optimizer steps"
        for rung in (first, last)
    )
    told = f"{before}, before and after" if before == after else f"{before} before, {after} after"
    return ["", *wrap(f"an epoch: {told}", 2)]


def beyond_the_usual(ladder: Ladder) -> list[str]:
    """The result beside a conventionally tuned job, for those who ask what usual tuning would have given."""
    usual = ladder.conventional
    if usual is None or len(ladder.rungs) < 2:
        return []
    lines = []
    if usual.ratio is not None:
        lines += wrap(f"beside a conventionally tuned job: {usual.ratio:.2f}x", 2)
    else:
        lacking = f"not tried: {', '.join(usual.lacking)}" if usual.lacking else "usual ones came with others"
        lines += wrap(f"beside a conventionally tuned job: unknown ({lacking})", 2)
    told = {"nothing left to gain by": usual.had, "brought here": usual.given, "not known": usual.unknown}
    for words, names in told.items():
        if names:
            lines += wrap(f"  usual optimisations, {words}: {', '.join(names)}", 4)
    return ["", *lines] if lines else []


def headline(ladder: Ladder) -> str:
    """One sentence with the result."""
    last = ladder.rungs[-1]
    if ladder.outcome == "faster" and last.ratio_to_first is not None:
        interval = ""
        if last.interval_to_first is not None:
            low, high = last.interval_to_first
            interval = f" (interval {low:.2f} to {high:.2f})"
        kept = len(ladder.rungs) - 1
        return (
            f"{last.ratio_to_first:.2f}x faster{interval} with {kept} kept change{'s' if kept != 1 else ''}."
        )
    if ladder.state in _UNFINISHED:
        return _UNFINISHED[ladder.state]
    if ladder.outcome == "undecided":
        return "Nothing is proven: the job shows too little of itself."
    if ladder.outcome == "nothing-to-do":
        return "Nothing to do: no check found anything that an edit could mend."
    return "Nothing was kept: no change proved to be faster with training unchanged."


def _row(number: int, rung: Rung, tokens: bool) -> list[str]:
    value = rung.useful_tokens_per_s if tokens else rung.step_ms
    shown = f"{value:,.0f}" if value is not None else "-"
    step = "-"
    if rung.ratio_to_previous is not None:
        step = f"{rung.ratio_to_previous:.2f}x"
        if rung.interval_to_previous is not None:
            step += f" {rung.interval_to_previous[0]:.2f}-{rung.interval_to_previous[1]:.2f}"
    whole = f"{rung.ratio_to_first:.2f}x" if rung.ratio_to_first is not None else "-"
    names = textwrap.wrap(rung.name, 31) or [""]
    lines = [f"{number:>2}  {names[0]:<32}{shown:>13}{step:>19}{whole:>9}"]
    return lines + [f"    {name}" for name in names[1:]]
