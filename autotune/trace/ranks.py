"""Several ranks of one job: align collectives, split waiting from transfer, name the late rank.

A synchronising collective ends on all ranks at the same moment. That gives each rank's clock offset, and
with it the moment the last rank arrived: time in the kernel before it is waiting, after it transfer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from autotune.records.trace_comm import AlignedCollective, CrossRank, RankLoad
from autotune.trace.collective_calls import Call
from autotune.trace.context import Context
from autotune.trace.gpu_time import COMMUNICATION

I64 = npt.NDArray[np.int64]
Clock = Literal["shared", "estimated", "unknown"]

SYNCHRONISING = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
_SHARED_NS = 50_000  # ends this close mean that the ranks' clocks agree
_NOISE_NS = 5_000


@dataclass(frozen=True, slots=True)
class RankCollectives:
    """What the alignment needs from one rank, small enough to cross a process boundary."""

    rank: int
    keys: list[tuple[str, str, int]]  # kind, group, elements: calls of equal key align in order
    starts: I64  # absolute nanoseconds
    ends: I64
    compute_ns: int
    communication_ns: int


def rank_collectives(context: Context, calls: dict[int, Call], rank: int) -> RankCollectives:
    """The communication of one rank, in launch order."""
    gpu, trace = context.trace.gpu, context.trace
    rows = np.array(sorted(calls, key=lambda row: gpu.ts[row]), dtype=np.int64)
    keys = [_key(calls[row]) for row in rows.tolist()]
    mask = context.gpu_of_class(COMMUNICATION)
    return RankCollectives(
        rank=rank,
        keys=keys,
        starts=gpu.ts[rows] + trace.wall_ns,
        ends=context.gpu_end[rows] + trace.wall_ns,
        compute_ns=context.busy(~mask).total,
        communication_ns=context.busy(mask).total,
    )


def _key(call: Call) -> tuple[str, str, int]:
    args = call.args
    group = f"{args.ranks or args.group or ''}" if args else ""
    elements = args.elements_in if args and args.elements_in is not None else -1
    if call.kind == "all_to_all":
        elements = -1  # ranks send different amounts
    return call.kind, group, elements


@dataclass(frozen=True, slots=True)
class _Aligned:
    kind: str
    ranks: list[int]
    starts: I64
    ends: I64


def align(parts: Sequence[RankCollectives]) -> CrossRank | None:
    """Wait and transfer per rank; None for fewer than two ranks, or when two files are of the same rank."""
    if len(parts) < 2 or len({part.rank for part in parts}) < len(parts):
        return None
    groups, unmatched = _match(parts)
    offsets, clock = _offsets(parts, groups)
    waits = {part.rank: 0 for part in parts}
    last_count = {part.rank: 0 for part in parts}
    late_by = {part.rank: 0 for part in parts}
    by_kind: dict[str, list[_Aligned]] = defaultdict(list)
    for item in groups:
        shifted = item.starts - np.array([offsets[rank] for rank in item.ranks])
        by_kind[item.kind].append(_Aligned(item.kind, item.ranks, shifted, item.ends - item.starts + shifted))
    aligned = []
    for kind, items in sorted(by_kind.items()):
        transfer = 0
        kind_wait = {part.rank: 0 for part in parts}
        for item in items:
            last = int(item.starts.max())
            order = np.sort(item.starts)
            transfer += max(int(np.median(item.ends - last)), 0)  # relative: doubles cannot hold epoch ns
            for rank, start, end in zip(item.ranks, item.starts.tolist(), item.ends.tolist(), strict=True):
                kind_wait[rank] += max(min(last, end) - start, 0)
            if order[-1] - order[-2] > _NOISE_NS:
                latest = item.ranks[int(item.starts.argmax())]
                last_count[latest] += 1
                late_by[latest] += int(order[-1] - order[-2])
        for rank, time in kind_wait.items():
            waits[rank] += time
        aligned.append(
            AlignedCollective(
                kind=kind,
                count=len(items),
                transfer_ms=transfer / 1e6,
                wait_ms={rank: time / 1e6 for rank, time in kind_wait.items()},
            )
        )
    late = _late(last_count, late_by, clock)
    return CrossRank(
        ranks=[
            RankLoad(
                rank=part.rank,
                compute_ms=part.compute_ns / 1e6,
                communication_ms=part.communication_ns / 1e6,
                wait_ms=waits[part.rank] / 1e6,
                last_arrivals=last_count[part.rank],
            )
            for part in sorted(parts, key=lambda part: part.rank)
        ],
        aligned=aligned,
        collectives_matched=len(groups),
        collectives_unmatched=unmatched,
        clock=clock,
        late_rank=late,
        late_by_ms=late_by[late] / 1e6 if late is not None else None,
        note=_note(groups, last_count, late_by, late, clock),
    )


def _match(parts: Sequence[RankCollectives]) -> tuple[list[_Aligned], int]:
    """Calls of equal key, in order, on all ranks that have the key; and how many found no partner."""
    streams: dict[tuple[str, str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, part in enumerate(parts):
        for index, key in enumerate(part.keys):
            streams[key][at].append(index)
    groups, unmatched = [], 0
    for key, by_rank in streams.items():
        counts = {len(calls) for calls in by_rank.values()}
        if key[0] not in SYNCHRONISING or len(by_rank) < 2 or len(counts) != 1:
            unmatched += sum(map(len, by_rank.values()))
            continue
        members = sorted(by_rank)
        for calls in zip(*(by_rank[at] for at in members), strict=True):
            groups.append(
                _Aligned(
                    kind=key[0],
                    ranks=[parts[at].rank for at in members],
                    starts=np.array([parts[at].starts[i] for at, i in zip(members, calls, strict=True)]),
                    ends=np.array([parts[at].ends[i] for at, i in zip(members, calls, strict=True)]),
                )
            )
    return groups, unmatched


def _offsets(parts: Sequence[RankCollectives], groups: list[_Aligned]) -> tuple[dict[int, int], Clock]:
    """Clock offset of each rank against the first, from the common ends of collectives."""
    first = min(part.rank for part in parts)
    differences: dict[int, list[int]] = {part.rank: [] for part in parts}
    for item in groups:
        if first not in item.ranks:
            continue
        base = int(item.ends[item.ranks.index(first)])
        for rank, end in zip(item.ranks, item.ends.tolist(), strict=True):
            differences[rank].append(end - base)
    if any(not found for found in differences.values()):
        return {part.rank: 0 for part in parts}, "unknown"
    medians = {rank: int(np.median(found)) for rank, found in differences.items()}
    if max(map(abs, medians.values())) <= _SHARED_NS:
        return {part.rank: 0 for part in parts}, "shared"
    return medians, "estimated"


def _late(last_count: dict[int, int], late_by: dict[int, int], clock: Clock) -> int | None:
    """The rank that comes last again and again, if one clearly does."""
    decided = sum(last_count.values())
    if clock == "unknown" or not decided:
        return None
    worst = max(late_by, key=lambda rank: late_by[rank])
    others = sum(late_by.values()) - late_by[worst]
    return worst if late_by[worst] >= 2 * others and last_count[worst] >= 0.5 * decided else None


def _note(
    groups: list[_Aligned],
    last_count: dict[int, int],
    late_by: dict[int, int],
    late: int | None,
    clock: Clock,
) -> str:
    if not groups:
        return "no collective could be matched across the ranks: waiting and transfer stay mixed"
    if late is not None:
        return (
            f"rank {late} arrives last in {last_count[late]} of {len(groups)} collectives; "
            f"the others wait {late_by[late] / 1e6:.1f} ms for it"
        )
    return "the clocks could not be aligned" if clock == "unknown" else "no rank is late again and again"
