"""The top of the page: verdict, proof, headline figures, and what the report is about."""

from __future__ import annotations

import shlex
from typing import Literal

from autotune.records.ladder import Ladder
from autotune.records.trace import RankTrace
from autotune.report.html.gather import Material, Side
from autotune.report.html.view import Tile
from autotune.report.html.words import amount, milliseconds, number_of, percent, plural, text_of
from autotune.report.ladder import headline
from autotune.report.wrapping import duration, durations

Tone = Literal["good", "plain", "bad"]


def proof(material: Material) -> tuple[str, Tone]:
    """The result of the trials in a sentence; empty when none was made."""
    ladder = material.ladder
    if ladder is not None:
        sentence = headline(ladder)
        said = next((rung.parity for rung in ladder.rungs[1:] if rung.parity), "")
        if said:
            sentence += f" Training unchanged: {said}."
        return sentence, "good" if ladder.outcome == "faster" else "plain"
    last = next((verdict for name, verdict in reversed(material.verdicts) if name == "verify"), None)
    if last is None:
        return "", "plain"
    bad = last.outcome in ("slower", "parity-broken", "candidate-crashed", "patch-not-live")
    return last.sentence, "good" if last.accepted else "bad" if bad else "plain"


def subtitle(material: Material) -> str:
    """The command, or the traces."""
    card = material.card
    if card.command:
        return shlex.join(card.command)
    return ", ".join(path.rsplit("/", 1)[-1] for path in card.traces)


def tiles(material: Material) -> list[Tile]:
    """A handful of figures; each only where it was measured."""
    facts = material.diagnosis.facts
    found: list[Tile] = []
    ladder = material.ladder
    if ladder is not None and len(ladder.rungs) > 1:
        found += _ladder_tiles(ladder)
    else:
        step = number_of(facts, "run.step_ms")
        if step is not None:
            timed = number_of(facts, "run.steps_timed")
            basis = f"median of {plural(int(timed), 'unprofiled step')}" if timed else "unprofiled"
            found.append(Tile("step", milliseconds(step), basis))
        useful, padded = (number_of(facts, f"run.{kind}_tokens_per_s") for kind in ("useful", "all"))
        if useful is not None:
            extra = f"{padded:,.0f} with padding" if padded and padded > useful * 1.01 else "none is padding"
            found.append(Tile("useful tokens/s", f"{useful:,.0f}", extra))
        whole = number_of(facts, "run.projected_hours")
        if whole is not None:
            found.append(Tile("whole job", duration(whole), "projected"))
    found += _device_tiles(material)
    return found


def _ladder_tiles(ladder: Ladder) -> list[Tile]:
    first, last = ladder.rungs[0], ladder.rungs[-1]
    found = []
    if last.ratio_to_first is not None:
        text = "faster, measured"
        if last.interval_to_first is not None:
            text = f"interval {last.interval_to_first[0]:.2f} to {last.interval_to_first[1]:.2f}"
        found.append(Tile("speed-up", f"{last.ratio_to_first:.2f}x", text))
    if first.useful_tokens_per_s is not None and last.useful_tokens_per_s is not None:
        value = f"{first.useful_tokens_per_s:,.0f} → {last.useful_tokens_per_s:,.0f}"
        found.append(Tile("useful tokens/s", value, "medians of whole runs"))
    if first.step_ms is not None and last.step_ms is not None:
        found.append(Tile("step", f"{milliseconds(first.step_ms)} → {milliseconds(last.step_ms)}", "median"))
    if first.projected_hours is not None and last.projected_hours is not None:
        value = " → ".join(durations(first.projected_hours, last.projected_hours))
        found.append(Tile("whole job", value, "projected"))
    return found


def _device_tiles(material: Material) -> list[Tile]:
    facts = material.diagnosis.facts
    found = []
    utilisation, mfu = number_of(facts, "device.utilisation_frac"), number_of(facts, "run.mfu_frac")
    busy = number_of(facts, "launch.gpu_busy_frac")
    if utilisation is not None and mfu is not None:
        detail = "what nvidia-smi shows, and the share of peak FLOP/s in use (MFU)"
        found.append(Tile("GPU: shown and used", f"{percent(utilisation)} / {percent(mfu)}", detail))
    elif mfu is not None:
        found.append(Tile("MFU", percent(mfu), "of peak FLOP/s"))
    if busy is not None:
        found.append(Tile("GPU busy", percent(busy), "of an unprofiled step"))
    rank = _rank(material.before)
    if rank is not None and rank.gpu is not None and busy is None:
        found += _trace_tiles(rank, _rank(material.after))
    peak, whole = number_of(facts, "memory.peak_reserved_gib"), number_of(facts, "memory.device_gib")
    if peak is not None:
        detail = f"of {amount(whole)} GiB at the peak" if whole is not None else "at the peak"
        found.append(Tile("GPU memory", f"{amount(peak)} GiB", detail))
    return found


def _rank(side: Side | None) -> RankTrace | None:
    return (
        side.traces.ranks[0] if side is not None and side.traces is not None and side.traces.ranks else None
    )


def _trace_tiles(before: RankTrace, after: RankTrace | None) -> list[Tile]:
    """Figures of a saved trace, or of a pair of them; times of the profiled run."""
    ranks = [rank for rank in (before, after) if rank is not None and rank.gpu is not None]
    busy = [milliseconds(rank.gpu.busy_ms) for rank in ranks if rank.gpu is not None]
    share = [percent(1 - rank.gpu.idle_frac) for rank in ranks if rank.gpu is not None]
    kernels = [f"{rank.tables.gpu_kernel_count:,}" for rank in ranks]
    medians = [rank.tables.median_kernel_us for rank in ranks]
    known = [f"{amount(value)} µs" for value in medians if value is not None]
    calls = [f"{rank.tables.cpu_calls:,}" for rank in ranks]
    return [
        Tile("GPU busy", _then(share), "of the profiled run"),
        Tile("GPU busy time", _then(busy), "profiled"),
        Tile("GPU kernels", _then(kernels), f"median {_then(known)}" if len(known) == len(ranks) else ""),
        Tile("CPU op calls", _then(calls), "nested ones counted each"),
    ]


def _then(values: list[str]) -> str:
    return " → ".join(values)


def footer(material: Material) -> list[str]:
    """Where the numbers come from."""
    card, facts = material.card, material.diagnosis.facts
    machine = ", ".join(
        part
        for part in (
            text_of(facts, "device.name"),
            f"torch {text_of(facts, 'env.torch')}" if text_of(facts, "env.torch") else "",
            f"transformers {text_of(facts, 'env.transformers')}"
            if text_of(facts, "env.transformers")
            else "",
            f"Python {text_of(facts, 'env.python')}" if text_of(facts, "env.python") else "",
        )
        if part
    )
    lines = [
        f"Run {material.run}, begun {card.created.replace('T', ' ')[:16]} UTC, autotune {card.autotune}."
    ]
    if machine:
        lines.append(f"Seen on: {machine}.")
    lines.append(f"This page was written {material.made_at} UTC. It loads nothing and sends nothing.")
    return lines
