"""Event files of one launch -> Observation.

Reads what is there: a killed rank counts up to its last whole line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.observe.rank_events import RankEvents
from autotune.records.observation import DeviceSample, GuardRecord, LaunchMode, Observation, RankObservation
from autotune.records.sites import Site

_SHOWN_PLACES = 3
_RANK_FOLDER = re.compile(r"^rank-(\d{5})(?:\.(\d+))?$")


def read_observation(
    folder: Path,
    *,
    mode: LaunchMode,
    command: Sequence[str],
    cwd: Path | str,
    exit_code: int | None,
    wall_s: float,
    expected_ranks: int,
    started_s: float | None = None,
    device_samples: Iterable[DeviceSample] = (),
    log_tail: Iterable[str] = (),
    notes: Iterable[str] = (),
    stop_reason: str | None = None,
    launcher: str | None = None,
) -> Observation:
    """`started_s`: monotonic clock when the command was started; it makes start-up times count from there."""
    parsed, more_notes = _ranks(folder / "raw")
    ranks = [events.observation(folder, started_s) for events in parsed]
    first = parsed[0] if parsed else None
    guards = [guard for events in parsed for guard in events.guards]
    guards += _process_guards(folder / "raw")
    return Observation(
        mode=mode,
        command=list(command),
        cwd=str(cwd),
        exit_code=exit_code,
        wall_s=wall_s,
        ranks=ranks,
        expected_ranks=max(expected_ranks, *(rank.world_size for rank in ranks), 0),
        sites=_merge_sites(zip(ranks, (events.sites for events in parsed), strict=True)),
        guards=guards,
        device_samples=list(device_samples),
        launcher=launcher,
        trainer_kind=first.trainer_kind if first else None,
        carrier=first.carrier if first else None,
        epochs_planned=first.epochs_planned if first else None,
        max_steps_planned=first.max_steps_planned if first else None,
        log_tail=list(log_tail),
        notes=[
            *notes,
            *more_notes,
            *_unique(note for events in parsed for note in events.notes),
            *_kept_from_change(guards, str(cwd)),
        ],
        stop_reason=stop_reason,
    )


def hello_files(folder: Path) -> list[dict[str, Any]]:
    """What each booted Python process said about itself, oldest first; empty when the probe never started."""
    found = []
    for path in (folder / "hello").glob("*.json"):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda hello: float(hello.get("at_s", 0.0)))


def _ranks(raw: Path) -> tuple[list[RankEvents], list[str]]:
    """One per rank: where several processes claimed a rank, the one with the most steps."""
    candidates: dict[int, list[RankEvents]] = {}
    if raw.is_dir():
        for path in sorted(raw.iterdir()):
            match = _RANK_FOLDER.match(path.name)
            if match and (path / "events.jsonl").is_file():
                number = int(match.group(1))
                candidates.setdefault(number, []).append(RankEvents.read(path, number))
    notes = [
        f"{len(claims)} processes trained as rank {number}; the one with the most steps is used"
        for number, claims in sorted(candidates.items())
        if len(claims) > 1
    ]
    chosen = [max(claims, key=lambda events: len(events.steps)) for _, claims in sorted(candidates.items())]
    return chosen, notes


def _kept_from_change(guards: Sequence[GuardRecord], cwd: str) -> list[str]:
    """One sentence on what the job wrote and removed, and where; the record holds each call."""
    words = []
    for action, one, many in (("redirected", "write", "writes"), ("suppressed", "removal", "removals")):
        targets = [g.target for g in guards if g.action == action and g.target.startswith("/")]
        if not targets:
            continue
        places = list(
            dict.fromkeys(os.path.relpath(t, cwd) if t.startswith(cwd + os.sep) else t for t in targets)
        )
        shown = ", ".join(places[:_SHOWN_PLACES]) + (", ..." if len(places) > _SHOWN_PLACES else "")
        words.append(f"{len(targets)} {one if len(targets) == 1 else many} ({shown})")
    return [f"your files were kept from change by this run: {'; '.join(words)}"] if words else []


def _process_guards(raw: Path) -> list[GuardRecord]:
    guards: list[GuardRecord] = []
    if raw.is_dir():
        for path in sorted(raw.glob("process-*")):
            if (path / "events.jsonl").is_file():  # a process may have left only a note of a fault
                guards += RankEvents.read(path, -1).guards
    return guards


def _merge_sites(seen: Iterable[tuple[RankObservation, list[Site]]]) -> list[Site]:
    """The same call on several ranks is one site: calls of the busiest rank, all ranks listed."""
    merged: dict[tuple[object, ...], Site] = {}
    for rank, sites in seen:
        for site in sites:
            key = (site.kind, site.file, site.span, site.line, site.callee)
            known = merged.get(key)
            if known is None:
                merged[key] = site.model_copy(update={"ranks": [rank.rank]})
                continue
            times = [t for t in (known.total_ms, site.total_ms) if t is not None]
            merged[key] = known.model_copy(
                update={
                    "ranks": [*known.ranks, rank.rank],
                    "calls": max(known.calls, site.calls),
                    "total_ms": max(times) if times else None,
                }
            )
    return list(merged.values())


def _unique(items: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for item in items:
        if item not in seen:
            seen.add(item)
            yield item
