"""The event file of one rank: every kind of event to the record it stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from autotune.records.base import Record
from autotune.records.host import (
    ForwardUses,
    GrowthRecord,
    HostSamples,
    PassesRecord,
    RepeatedCalls,
)
from autotune.records.observation import (
    CheckpointingRecord,
    CompileReason,
    EnvironmentRecord,
    FlagsRecord,
    ForwardRecord,
    GuardRecord,
    LoaderRecord,
    MemoryRecord,
    MemoryStep,
    ModelRecord,
    OptimizerRecord,
    PhaseRecord,
    ProcessGroupRecord,
    RankObservation,
    SegmentRecord,
    ShardingRecord,
    StepRecord,
    WindowRecord,
)
from autotune.records.parity import IsolationRecord, ParityRecord, ParityStep
from autotune.records.recipe import RecipeRecord
from autotune.records.sites import Site

R = TypeVar("R", bound=Record)

# events that are whole records of which the last one counts
_LAST: dict[str, type[Record]] = {
    "environment": EnvironmentRecord,
    "flags": FlagsRecord,
    "model": ModelRecord,
    "forward": ForwardRecord,
    "forward_uses": ForwardUses,
    "host_samples": HostSamples,
    "repeated_calls": RepeatedCalls,
    "passes": PassesRecord,
    "growth": GrowthRecord,
    "checkpointing": CheckpointingRecord,
    "sharding": ShardingRecord,
    "memory": MemoryRecord,
    "recipe": RecipeRecord,
}


@dataclass
class RankEvents:
    """Everything one events.jsonl said, in records."""

    rank: int
    folder: Path
    start: dict[str, Any] = field(default_factory=dict)
    last: dict[str, Record] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)
    optimizers: dict[str, OptimizerRecord] = field(default_factory=dict)
    loaders: dict[str, LoaderRecord] = field(default_factory=dict)
    site_table: dict[str, Site] = field(default_factory=dict)
    process_groups: list[ProcessGroupRecord] = field(default_factory=list)
    guards: list[GuardRecord] = field(default_factory=list)
    phases: list[PhaseRecord] = field(default_factory=list)
    segments: list[SegmentRecord] = field(default_factory=list)
    compile_reasons: dict[tuple[str, ...], CompileReason] = field(default_factory=dict)
    memory_steps: list[MemoryStep] = field(default_factory=list)
    windows: list[WindowRecord] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    parity: dict[str, Any] = field(default_factory=dict)
    parity_steps: list[ParityStep] = field(default_factory=list)
    isolation: list[IsolationRecord] = field(default_factory=list)
    trace: dict[str, Any] = field(default_factory=dict)
    exit: dict[str, Any] = field(default_factory=dict)
    fingerprint: str | None = None
    trainer_kind: str | None = None
    carrier: str | None = None
    epochs_planned: float | None = None
    max_steps_planned: int | None = None
    out_of_memory: str | None = None
    notes: list[str] = field(default_factory=list)
    device_ms: dict[int, float] = field(default_factory=dict)
    first_backward_s: float | None = None

    @classmethod
    def read(cls, folder: Path, rank: int) -> RankEvents:
        events = cls(rank, folder)
        path = folder / "events.jsonl"
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.endswith("\n"):
                    break  # the rank was killed while it wrote this line
                try:
                    event = json.loads(line)
                except ValueError:
                    events.notes.append(f"an unreadable line in {folder.name}/events.jsonl was skipped")
                    continue
                events._take(event.pop("event", ""), event)
        try:
            events.exit = json.loads((folder / "exit.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            events.exit = {}
        return events

    @property
    def sites(self) -> list[Site]:
        return list(self.site_table.values())

    def _take(self, kind: str, event: dict[str, Any]) -> None:
        if kind in _LAST:
            record = self._record(_LAST[kind], event, kind)
            if record is not None:
                self.last[kind] = record
        elif kind in _TAKERS:
            _TAKERS[kind](self, event)

    def _record(self, model: type[R], event: dict[str, Any], kind: str) -> R | None:
        try:
            return model.model_validate(event)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            self.notes.append(
                f"a {kind} event of rank {self.rank} was not understood ({place}: {first['msg']})"
            )
            return None

    def _add(self, target: list[R], model: type[R], event: dict[str, Any], kind: str) -> None:
        record = self._record(model, event, kind)
        if record is not None:
            target.append(record)

    def take_step(self, event: dict[str, Any]) -> None:
        self._add(self.steps, StepRecord, event, "step")

    def take_keyed(self, table: dict[str, R], model: type[R], event: dict[str, Any], kind: str) -> None:
        key = str(event.pop("key", ""))
        record = self._record(model, event, kind)
        if record is not None:
            table[key] = record

    def take_site(self, event: dict[str, Any]) -> None:
        site = self._record(Site, event, "site")
        if site is not None:
            self.site_table[site.id] = site

    def take_site_update(self, event: dict[str, Any]) -> None:
        site = self.site_table.get(str(event.pop("id", "")))
        if site is not None:
            merged = {**site.model_dump(), **event}
            self.take_site(merged)

    def take_process_groups(self, event: dict[str, Any]) -> None:
        self.process_groups = []
        for group in event.get("groups", []):
            self._add(self.process_groups, ProcessGroupRecord, group, "process group")

    def take_compile_reason(self, event: dict[str, Any]) -> None:
        record = self._record(CompileReason, event, "compile reason")
        if record is not None:
            self.compile_reasons[(record.kind, record.function, record.reason)] = record

    def take_schedule(self, event: dict[str, Any]) -> None:
        self.epochs_planned = event.get("epochs_planned", self.epochs_planned)
        self.max_steps_planned = event.get("max_steps_planned", self.max_steps_planned)

    def take_trainer(self, event: dict[str, Any]) -> None:
        self.trainer_kind = event.get("trainer_kind") or self.trainer_kind
        self.carrier = event.get("carrier") or self.carrier

    def observation(self, launch: Path, started_s: float | None) -> RankObservation:
        """`launch`: the launch folder; `started_s`: when the command was started, on the same clock."""
        environment = self.last.get("environment") or EnvironmentRecord(python="", torch="")
        memory = self.last.get("memory")
        if self.out_of_memory is not None:
            memory = (memory or MemoryRecord()).model_copy(update={"out_of_memory": True})
        boot_s = self.start.get("boot_s") if started_s is None else started_s
        startup_s = None
        if self.first_backward_s is not None and boot_s is not None:
            startup_s = self.first_backward_s - float(boot_s)
        trace_file = self.trace.get("trace_file")
        steps = [
            step.model_copy(update={"duration_ms": on_device, "host_ms": step.duration_ms})
            if (on_device := self.device_ms.get(step.index)) is not None
            else step
            for step in self.steps
        ]
        status = self.exit.get("status", "killed")
        counters = dict(self.counters)
        if self.exit.get("steps"):
            counters["steps"] = float(self.exit["steps"])  # a long watch writes only some of them
        if self.exit.get("hook_fault_count"):
            counters["hook_faults"] = float(self.exit["hook_fault_count"])
        has_parity = bool(self.parity or self.parity_steps or self.isolation)
        return RankObservation.model_validate(
            {
                "rank": self.rank,
                "world_size": int(self.start.get("world_size", 1)),
                "environment": environment,
                "status": status,
                "error": self.exit.get("error"),
                "startup_s": startup_s,
                "steps": steps,
                "windows": self.windows,
                "model": self.last.get("model"),
                "forward": self.last.get("forward"),
                "forward_uses": self.last.get("forward_uses"),
                "host_samples": self.last.get("host_samples"),
                **{name: self.last.get(name) for name in ("repeated_calls", "passes", "growth")},
                "optimizers": list(self.optimizers.values()),
                "loaders": list(self.loaders.values()),
                "checkpointing": self.last.get("checkpointing"),
                "sharding": self.last.get("sharding"),
                "process_groups": self.process_groups,
                "memory": memory,
                "memory_steps": self.memory_steps,
                "flags": self.last.get("flags"),
                "recipe": self.last.get("recipe"),
                "phases": self.phases,
                "segments": self.segments,
                "compile_reasons": list(self.compile_reasons.values()),
                "parity": self._parity() if has_parity else None,
                "trace_file": trace_file if trace_file and (launch / trace_file).is_file() else None,
                "traced_steps": int(self.trace.get("traced_steps", 0)),
                "traced_micro_batches": self.trace.get("traced_micro_batches"),
                "counters": counters,
                "patch_fingerprint": self.fingerprint,
                "hook_faults": list(self.exit.get("hook_faults", [])),
                "hook_ms_total": float(self.exit.get("hook_ms_total", 0.0)),
            }
        )

    def _parity(self) -> ParityRecord | None:
        return self._record(
            ParityRecord,
            {**self.parity, "steps": self.parity_steps, "isolation": self.isolation},
            "parity",
        )


_TAKERS: dict[str, Any] = {
    "start": lambda r, e: r.start.update(e),
    "step": RankEvents.take_step,
    "optimizer": lambda r, e: r.take_keyed(r.optimizers, OptimizerRecord, e, "optimizer"),
    "loader": lambda r, e: r.take_keyed(r.loaders, LoaderRecord, e, "loader"),
    "site": RankEvents.take_site,
    "site_update": RankEvents.take_site_update,
    "guard": lambda r, e: r._add(r.guards, GuardRecord, e, "guard"),
    "phase": lambda r, e: r._add(r.phases, PhaseRecord, e, "phase"),
    "segment": lambda r, e: r._add(r.segments, SegmentRecord, e, "segment"),
    "process_groups": RankEvents.take_process_groups,
    "compile_reason": RankEvents.take_compile_reason,
    "memory_step": lambda r, e: r._add(r.memory_steps, MemoryStep, e, "memory step"),
    "window": lambda r, e: r._add(r.windows, WindowRecord, e, "window"),
    "counters": lambda r, e: r.counters.update(e.get("values", {})),
    "parity": lambda r, e: r.parity.update(e),
    "parity_step": lambda r, e: r._add(r.parity_steps, ParityStep, e, "parity step"),
    "isolation": lambda r, e: r._add(r.isolation, IsolationRecord, e, "isolation"),
    "trace": lambda r, e: r.trace.update(e),
    "fingerprint": lambda r, e: setattr(r, "fingerprint", e.get("digest")),
    "trainer": RankEvents.take_trainer,
    "schedule": RankEvents.take_schedule,
    "out_of_memory": lambda r, e: setattr(r, "out_of_memory", e.get("error", "")),
    "note": lambda r, e: r.notes.append(str(e.get("text", ""))),
    "device_step": lambda r, e: r.device_ms.__setitem__(int(e["index"]), float(e["device_ms"])),
    "first_backward": lambda r, e: setattr(r, "first_backward_s", e.get("at_s")),
}
