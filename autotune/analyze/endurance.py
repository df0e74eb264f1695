"""From a watched run to its report: drift, pauses, slow steps, throttling, stragglers, growing memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from autotune.analyze.stretches import FEWEST, Change, column, find_change, settled, slow_stretches
from autotune.records.watch import PauseTotal, Remark, WatchReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.records.observation import DeviceSample, Observation, RankObservation, SegmentRecord

_PARTS = {  # per-step field -> what grew
    "loader_wait_ms": "the wait for the next batch",
    "gc_ms": "garbage collection",
    "log_ms": "logging",
    "optimizer_ms": "the optimizer",
}
_PAUSES = ("checkpoint", "evaluation", "gc", "log")
_WORTH_FRAC = 0.01  # of the run
_LONG_TIMES = 10.0  # a pause or a step this many times the median step
_START_UP = 20  # steps
_BEHIND_FRAC = 0.05  # of a step
_GROWTH_FRAC, _GROWTH_BYTES = 0.05, 32 << 20
_MIB = 1 << 20


def watch_report(observation: Observation) -> WatchReport:
    """Everything that the stretches, phases and samples of the run tell."""
    ranks = [rank for rank in observation.ranks if rank.segments]
    lead = ranks[0] if ranks else None
    segments = settled(lead.segments) if lead else []
    medians = [s.median_ms for s in segments if s.median_ms is not None]
    trained_s = lead.segments[-1].end_s - lead.segments[0].start_s if lead else 0.0
    typical_ms = float(median(medians)) if medians else None
    report = WatchReport(
        command=observation.command,
        exit_code=observation.exit_code,
        wall_s=observation.wall_s,
        ranks=len(observation.ranks),
        expected_ranks=observation.expected_ranks,
        steps=lead.segments[-1].last_step
        if lead
        else max((len(r.steps) for r in observation.ranks), default=0),
        trained_s=trained_s,
        median_ms=typical_ms,
        pauses=_pauses(lead, trained_s) if lead else [],
        unknown=_unknown(observation, segments),
    )
    if lead is None or typical_ms is None:
        return report
    remarks = [
        *_drift(ranks),
        *_pause_remarks(report.pauses, typical_ms),
        *_slow_steps(lead, segments, typical_ms),
        *_stragglers(ranks, typical_ms),
        *_memory_growth(ranks),
        *_devices(observation.device_samples),
    ]
    return report.model_copy(update={"remarks": remarks})


def _steps(observation: Observation, lead: RankObservation | None) -> int:
    if lead is not None:
        return lead.segments[-1].last_step
    return max((len(rank.steps) for rank in observation.ranks), default=0)


def _unknown(observation: Observation, segments: Sequence[SegmentRecord]) -> list[str]:
    found = []
    if len(segments) < FEWEST:
        found.append(f"change over time: {len(segments)} stretches of steps were seen, {FEWEST} are needed")
    if not observation.device_samples:
        found.append("clocks and throttling: no NVIDIA GPU was sampled")
    if len(observation.ranks) < observation.expected_ranks:
        found.append(f"{observation.expected_ranks - len(observation.ranks)} ranks: they did not report")
    return found


def _pauses(lead: RankObservation, trained_s: float) -> list[PauseTotal]:
    found = []
    for kind in _PAUSES:
        total_ms = sum(getattr(s, f"{kind}_ms") for s in lead.segments)
        longest = [p.duration_ms for p in lead.phases if p.kind == kind]
        if total_ms > 0:
            found.append(
                PauseTotal(
                    kind=kind,  # type: ignore[arg-type]
                    total_ms=total_ms,
                    share_frac=min(1.0, total_ms / 1e3 / trained_s) if trained_s else 0.0,
                    longest_ms=max(longest, default=None),
                    recorded=len(longest),
                )
            )
    return found


def _drift(ranks: Sequence[RankObservation]) -> Iterator[Remark]:
    """Of the rank that changed most: ranks that wait for each other change together."""
    found: list[tuple[RankObservation, list[SegmentRecord], Change]] = []
    for rank in ranks:
        segments = settled(rank.segments)
        change = find_change(column(segments, "median_ms", per_step=False))
        if change is not None:
            found.append((rank, segments, change))
    if found:
        rank, segments, change = max(found, key=lambda item: abs(item[2].frac))
        yield _change_remark(rank, segments, change)
        return
    segments = settled(ranks[0].segments)
    if len(segments) < FEWEST:
        return
    values = column(segments, "median_ms", per_step=False)
    for first, last in slow_stretches(values)[:5]:
        slow, usual = float(np.median(values[first : last + 1])), float(np.nanmedian(values))
        yield Remark(
            kind="slow-stretch",
            text=f"steps {segments[first].first_step:,} to {segments[last].last_step:,} took {slow:.4g} ms "
            f"instead of {usual:.4g} ms",
            rank=ranks[0].rank,
            first_step=segments[first].first_step,
            last_step=segments[last].last_step,
            change_frac=slow / usual - 1.0,
        )


def _change_remark(rank: RankObservation, segments: list[SegmentRecord], change: Change) -> Remark:
    word = "slower" if change.frac > 0 else "faster"
    how = "gradually" if change.kind == "drift" else f"at step {segments[change.at].first_step:,}"
    text = (
        f"steps became {abs(change.frac):.0%} {word} {how}: {change.before:.4g} ms before, "
        f"{change.after:.4g} ms after"
    )
    why, figures = _explanation(segments, change)
    return Remark(
        kind=change.kind,
        text=text + (f"; {why}" if why else ""),
        rank=rank.rank,
        first_step=segments[change.at].first_step if change.kind == "jump" else segments[0].first_step,
        last_step=segments[-1].last_step,
        change_frac=change.frac,
        figures={"before_ms": change.before, "after_ms": change.after, **figures},
    )


def _explanation(segments: list[SegmentRecord], change: Change) -> tuple[str, dict[str, float]]:
    """What changed along with the step time: a part of the step, or the tokens in it."""
    split = change.at if change.kind == "jump" else len(segments) // 2
    edge = max(1, len(segments) // 4) if change.kind == "drift" else split

    def moved(name: str) -> tuple[float, float] | None:
        values = column(segments, name)
        before, after = values[:edge], values[split:] if change.kind == "jump" else values[-edge:]
        if np.isnan(before).all() or np.isnan(after).all():
            return None
        return float(np.nanmedian(before)), float(np.nanmedian(after))

    grown_ms = change.after - change.before
    figures: dict[str, float] = {}
    best, best_share = "", 0.4
    for name, what in _PARTS.items():
        pair = moved(name)
        if pair is None:
            continue
        figures[f"{name}_change"] = pair[1] - pair[0]
        share = (pair[1] - pair[0]) / grown_ms
        if share > best_share:
            best_share = share
            best = f"{what} changed by {pair[1] - pair[0]:+.3g} ms of it"
    tokens = moved("real_tokens") or moved("tokens")
    if tokens is not None and tokens[0]:
        figures["tokens_change_frac"] = tokens[1] / tokens[0] - 1.0
        if not best and figures["tokens_change_frac"] / change.frac > 0.6:
            best = f"the tokens of a step changed by {figures['tokens_change_frac']:+.0%}"
    return best, figures


def _pause_remarks(pauses: Sequence[PauseTotal], typical_ms: float) -> Iterator[Remark]:
    names = {"gc": "garbage collection", "checkpoint": "saving checkpoints", "log": "logging"}
    for pause in pauses:
        long = pause.longest_ms is not None and pause.longest_ms >= max(1000.0, _LONG_TIMES * typical_ms)
        if pause.share_frac < _WORTH_FRAC and not long:
            continue
        longest = f", the longest took {pause.longest_ms / 1e3:.3g} s" if pause.longest_ms else ""
        yield Remark(
            kind="pause",
            text=f"{names.get(pause.kind, pause.kind)} took {pause.total_ms / 1e3:.3g} s, "
            f"{pause.share_frac:.1%} of the run{longest}",
            spent_ms=pause.total_ms,
            figures={"share_frac": pause.share_frac, "longest_ms": pause.longest_ms or 0.0},
        )


def _slow_steps(
    lead: RankObservation, segments: Sequence[SegmentRecord], typical_ms: float
) -> Iterator[Remark]:
    """Single steps that nothing known interrupted."""
    limit_ms = max(_LONG_TIMES * typical_ms, typical_ms + 20.0)
    begin = max(segments[0].first_step, _START_UP)
    odd = [s for s in lead.steps if s.index >= begin and not s.tags and s.duration_ms > limit_ms]
    lost_ms = sum(step.duration_ms - typical_ms for step in odd)
    total_ms = sum(s.total_ms for s in segments)
    if odd and (lost_ms > _WORTH_FRAC * total_ms or len(odd) >= 3):
        worst = max(odd, key=lambda step: step.duration_ms)
        yield Remark(
            kind="slow-steps",
            text=f"{len(odd)} steps took more than {limit_ms / typical_ms:.0f} times the median; the slowest "
            f"was step {worst.index:,} with {worst.duration_ms / 1e3:.3g} s",
            rank=lead.rank,
            spent_ms=lost_ms,
            figures={"count": float(len(odd)), "slowest_ms": worst.duration_ms},
        )


def _stragglers(ranks: Sequence[RankObservation], typical_ms: float) -> Iterator[Remark]:
    """A rank whose host is late to the backward, steps in which every rank waits for it."""
    if len(ranks) < 2:
        return
    late: dict[int, tuple[float, float]] = {}
    for rank in ranks:
        values = column(settled(rank.segments), "before_backward_ms")
        if values.size >= 3 and not np.isnan(values).all():
            late[rank.rank] = (float(np.nanmedian(values)), float(np.nanpercentile(values, 25)))
    for number, (own_ms, low_ms) in late.items():
        others = [value for other, (value, _) in late.items() if other != number]
        if not others:
            continue
        behind_ms = own_ms - float(np.median(others))
        if behind_ms > max(1.0, _BEHIND_FRAC * typical_ms) and low_ms > float(np.median(others)):
            yield Remark(
                kind="straggler",
                text=f"rank {number} begins its backward {behind_ms:.3g} ms later than the other ranks, "
                f"{behind_ms / typical_ms:.0%} of a step; they wait for it",
                rank=number,
                change_frac=behind_ms / typical_ms,
                figures={"behind_ms": behind_ms},
            )


def _memory_growth(ranks: Sequence[RankObservation]) -> Iterator[Remark]:
    for rank in ranks:
        segments = settled(rank.segments)
        for name, what in (("host_rss_bytes", "host"), ("device_allocated_bytes", "device")):
            values = column(segments, name, per_step=False)
            # the second half of the run: what only grows while the job warms up is none
            begin = max(0, min(len(values) // 2, len(values) - FEWEST))
            half = values[begin:]
            change = find_change(half)
            if change is None or change.frac < _GROWTH_FRAC or change.after - change.before < _GROWTH_BYTES:
                continue
            grown = float(half[-1] - half[0])
            since = segments[begin]
            hours = (segments[-1].end_s - since.end_s) / 3600
            yield Remark(
                kind="memory-growth",
                text=f"{what} memory of rank {rank.rank} grew by {grown / _MIB:.0f} MiB since step "
                f"{since.last_step:,}, {grown / hours / 2**30:.2g} GiB an hour",
                rank=rank.rank,
                first_step=since.last_step,
                last_step=segments[-1].last_step,
                change_frac=change.frac,
                figures={"grown_mib": grown / _MIB, "gib_per_hour": grown / hours / 2**30},
            )


def _devices(samples: Sequence[DeviceSample]) -> Iterator[Remark]:
    """Throttling and other processes, of each GPU while it computed."""
    for gpu in sorted({sample.gpu for sample in samples}):
        busy = [s for s in samples if s.gpu == gpu and (s.utilisation_frac or 0.0) > 0.3]
        if len(busy) < 20:
            continue
        reasons = Counter(reason for sample in busy for reason in sample.throttle_reasons or ())
        for reason, count in reasons.most_common(3):
            held = [s for s in busy if reason in (s.throttle_reasons or ())]
            clocks = [
                s.sm_clock_mhz / s.sm_clock_max_mhz for s in held if s.sm_clock_mhz and s.sm_clock_max_mhz
            ]
            if count / len(busy) < 0.02:
                continue
            speed = f" at {median(clocks):.0%} of the highest clock" if clocks else ""
            yield Remark(
                kind="throttling",
                text=f"GPU {gpu} was held back by {reason.replace('_', ' ')} in {count / len(busy):.0%} "
                f"of its busy time{speed}",
                gpu=gpu,
                figures={"share_frac": count / len(busy)},
            )
        shared = [s for s in busy if s.foreign_processes]
        if len(shared) / len(busy) > 0.02:
            yield Remark(
                kind="other-processes",
                text=f"another process used GPU {gpu} in {len(shared) / len(busy):.0%} of the samples",
                gpu=gpu,
                figures={"share_frac": len(shared) / len(busy)},
            )
