"""Communication of one rank, and what several ranks together show."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Record


class CollectiveRow(Record):
    """Equal collectives of one rank: same kind, size, type and group."""

    kind: str = Field(
        description="all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, send_recv, ..."
    )
    kernel: str
    count: int
    elements_in: int | None
    elements_out: int | None
    dtype: str | None
    group_size: int | None
    group: str | None
    bytes: int | None = Field(description="Per call: the larger of input and output")
    total_ms: float
    exposed_ms: float = Field(description="Not hidden behind other GPU work")
    fastest_ms: float
    median_ms: float
    slowest_ms: float
    bus_gb_s: float | None = Field(
        description="Bus bandwidth of the fastest call: waiting is inside the others"
    )


class Communication(Record):
    """Collectives and peer-to-peer work of one rank."""

    present: bool
    kernels: int
    total_ms: float | None = Field(description="None without GPU events")
    union_ms: float | None
    exposed_ms: float | None = Field(description="Union of all GPU work minus union of all but communication")
    exposed_frac: float | None = Field(description="Of the GPU span")
    overlap_frac: float | None = Field(
        description="Share of the communication union hidden behind other work"
    )
    pipeline_wait_frac: float | None = Field(
        description="Exposed point-to-point time as a share of the span; None without pipeline traffic"
    )
    host_ops: int = Field(description="Collective calls seen on the CPU")
    host_calls: int = Field(default=0, description="The same, with an op inside another counted once")
    host_bytes: int | None = Field(
        default=None,
        description="Of the calls on the CPU: the larger of input and output; None: unknown",
    )
    host_group_sizes: list[int] = Field(default_factory=list, description="Of the calls on the CPU")
    collectives: list[CollectiveRow]
    wait_or_transfer: Literal["unknown", "split"] = Field(
        description="One rank cannot tell waiting from transfer; CrossRank can"
    )


class FsdpUnit(Record):
    """Communication of one FSDP unit."""

    name: str
    all_gathers: int
    reduce_scatters: int
    all_gather_ms: float
    reduce_scatter_ms: float
    exposed_ms: float


class AlignedCollective(Record):
    """One kind of collective, aligned across ranks."""

    kind: str
    count: int
    transfer_ms: float = Field(description="Sum over calls of the time after the last rank arrived")
    wait_ms: dict[int, float] = Field(description="Per rank: time in the kernel before the last rank arrived")


class RankLoad(Record):
    """How one rank compares with the others."""

    rank: int
    compute_ms: float
    communication_ms: float
    wait_ms: float
    last_arrivals: int = Field(description="Collectives in which this rank came last")


class CrossRank(Record):
    """What several ranks of one job show together."""

    ranks: list[RankLoad]
    aligned: list[AlignedCollective]
    collectives_matched: int
    collectives_unmatched: int
    clock: Literal["shared", "estimated", "unknown"]
    late_rank: int | None
    late_by_ms: float | None
    note: str
