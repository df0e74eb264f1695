"""The memory plan of a loop: measure, try the best plan that fits, search again after every win of memory.

Checkpointing, the size of a micro-batch, gathered parameters and offloading share one headroom, so they are
planned together, after what changes the batches and before what only makes the same work faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotune.errors import AutotuneError
from autotune.optimize.arms import arm_of
from autotune.optimize.budget import minutes_of_one
from autotune.optimize.memory_group import (
    CHECKPOINTING,
    GATHERED,
    MICRO_BATCH,
    OFFLOAD,
    SWITCH_ON,
    PlanRefusedError,
    asked_micro_batch,
    group_of,
)
from autotune.optimize.memory_measure import (
    WITH_BLOCKS,
    Limit,
    Measurement,
    Peaks,
    limit_of,
    measure,
    request_of,
)
from autotune.optimize.memory_plan import FULL_RECOMPUTE_FRAC, MARGIN_FRAC, Candidate, Costs, search

if TYPE_CHECKING:
    from autotune.optimize.journal import Journal
    from autotune.optimize.options import LoopOptions
    from autotune.optimize.state import LoopState
    from autotune.records.facts import FactValue
    from autotune.records.plan import PatchedJob, Plan, PlanGroup
    from autotune.records.verdict import Trial, Verdict
    from autotune.verify.launches import Bench, Request

SPENDERS = frozenset(
    {
        "memory/checkpointing-unneeded",
        "memory/every-second-layer",
        "batching/accumulation-unneeded",
        GATHERED,
        OFFLOAD,
    }
)
_LATER = frozenset({"comm", "compile", "launch", "optimizer", "sync"})
_MOST_SEARCHES = 3
_MOST_TRIALS = 2  # compared plans of one search
_FREED = 0.95  # of the memory before: from here down a kept change is a win of memory
_GIB = 1024.0**3


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What the loop lends: its own ways to make, compare, keep and drop a group."""

    patch: Callable[[LoopState, PlanGroup], PatchedJob]
    over_budget: Callable[[LoopState, PlanGroup], str]
    compare: Callable[[LoopState, PlanGroup, PatchedJob], Verdict]
    keep: Callable[[LoopState, PlanGroup, PatchedJob, Verdict], None]
    drop: Callable[[LoopState, PlanGroup, str, bool], None]
    """The last one: whether a verdict was written."""


class MemoryStage:
    """When the memory plan is due in a loop, what waits for it, and its search."""

    def __init__(self, run: Path, options: LoopOptions, journal: Journal, tools: Tools) -> None:
        self._run = run
        self._options = options
        self._journal = journal
        self._tools = tools
        self._due = True
        self._searches = 0
        self._planned = False  # a measurement was made: what spends headroom is the plan's

    def is_due(self, state: LoopState, plan: Plan) -> bool:
        """Whether a search is to be made for the job as it is now."""
        return self._due and self._searches < _MOST_SEARCHES and not self._why_not(state, plan)

    def holds(self, state: LoopState, plan: Plan, group: PlanGroup) -> bool:
        """Whether the group is not for the loop itself to try: the plan takes it up, or it comes after it."""
        due = self.is_due(state, plan)
        if SPENDERS & set(group.rules):
            return due or self._planned
        return due and all(rule.partition("/")[0] in _LATER for rule in group.rules)

    def after_kept(self, verdict: Verdict) -> None:
        """A kept change that freed memory makes room for a larger micro-batch."""
        first, last = verdict.arms[0].memory, verdict.arms[-1].memory
        for before, after in (
            (first.allocated_bytes, last.allocated_bytes),
            (first.host_rss_bytes, last.host_rss_bytes) if first.allocated_bytes is None else (None, None),
        ):
            if before and after and after <= _FREED * before:
                self._due = True

    def go(self, state: LoopState, plan: Plan) -> str:
        """One search. Returns why the loop has to stop; empty when it goes on."""
        if self._out_of_time(state):
            self._needs(state, self._least_minutes(state) + minutes_of_one(state, self._options))
            return f"the memory plan does not fit into the limit of {self._options.max_minutes:g} minutes"
        self._due = False
        self._searches += 1
        limit = limit_of(state.observation, self._options.memory_limit_gib)
        assert limit is not None  # is_due
        peaks = self._measure(state, limit)
        if peaks is None:
            return ""
        self._planned = True
        return self._try_plans(state, plan, peaks, limit)

    def _out_of_time(self, state: LoopState) -> bool:
        """Two starts are the least a search takes: one that measures, one of a plan."""
        most = self._options.max_minutes
        return most is not None and state.minutes() + self._least_minutes(state) > most

    def _least_minutes(self, state: LoopState) -> float:
        """Of a search, without what an interrupted loop finished of it."""
        measured = self._bench().has(self._request(state, "as it is", state.current, _checkpoints(state)))
        return self._start_minutes(state) * (1 if measured else 2)

    def _start_minutes(self, state: LoopState) -> float:
        """Of one start; 0 where the job's own times are not known: then it is made."""
        from autotune.verify.estimate import launch_cost

        cost = launch_cost(state.observation)
        return cost.launch_s(len(WITH_BLOCKS)) / 60 if cost is not None else 0.0

    def _needs(self, state: LoopState, minutes: float) -> None:
        """What the command that goes on must allow, so that the search comes to an answer."""
        state.needs_minutes = max(state.needs_minutes, minutes)

    def _why_not(self, state: LoopState, plan: Plan) -> str:
        """Why there is nothing to plan; empty when there is."""
        choice, facts = self._options.choice, state.diagnosis.facts
        if all(choice.reason_against(rule) for rule in (CHECKPOINTING, MICRO_BATCH)):
            return "not selected"
        if limit_of(state.observation, self._options.memory_limit_gib) is None:
            return "how much memory there is, is not known"
        if _value(facts, "run.out_of_memory") is True:
            return "the job itself runs out of memory"
        on_gpu = _value(facts, "run.has_gpu") is True
        checkpointed = _value(facts, "memory.checkpointing") is True and not self._meant_for_gpu(state)
        # Without a device to wait for work nobody knows what a larger micro-batch brings: after a win only.
        accumulates = _accumulation(facts) >= 2 and (on_gpu or self._planned)
        spends = any(g.admissible and SPENDERS & set(g.rules) for g in plan.groups)
        return "" if checkpointed or accumulates or spends else "nothing spends headroom"

    def _meant_for_gpu(self, state: LoopState) -> bool:
        """A job on a CPU that was asked for little memory often stands in for one on a GPU."""
        facts = state.diagnosis.facts
        asked = _value(facts, "memory.checkpointing_asked") is True
        return asked and _value(facts, "run.has_gpu") is False

    def _measure(self, state: LoopState, limit: Limit) -> Peaks | None:
        blocks = _checkpoints(state)
        found = self._start(state, "as it is", state.current, blocks)
        peaks = found.peaks
        if peaks is None:
            why = "out of memory on the longest batch" if found.out_of_memory else found.reason
            self._say("memory", f"The memory could not be measured: {why}.")
            return None
        if blocks and not peaks.blocks:
            self._say("memory", "No checkpointed call was seen (compiled, or of another library): it stays.")
        planned_already = any(CHECKPOINTING in group.rules for group in state.kept)
        if planned_already or self._meant_for_gpu(state):
            peaks = replace(peaks, block_bytes=None, blocks=0)
        block = ""
        if peaks.blocks and peaks.block_bytes is not None:
            block = f", one of {peaks.blocks} checkpointed blocks keeps {_gib(peaks.block_bytes)} without it"
            if found.out_of_memory:
                block += "; a step with a block less checkpointed already ran out of memory"
        batch = "batches as they came"
        if peaks.longest_tokens:
            batch = f"examples of {peaks.longest_tokens} tokens first"
        self._say(
            "memory",
            f"Measured ({batch}): peak {_gib(peaks.peak_bytes)}, at rest {_gib(peaks.resting_bytes)}{block}. "
            f"There are {_gib(limit.bytes)} ({limit.source}), of which {MARGIN_FRAC:.0%} stay free.",
            peak_bytes=peaks.peak_bytes,
            resting_bytes=peaks.resting_bytes,
            block_bytes=peaks.block_bytes,
            blocks=peaks.blocks,
            limit_bytes=limit.bytes,
        )
        return None if found.out_of_memory and peaks.block_bytes is None else peaks

    def _try_plans(self, state: LoopState, plan: Plan, peaks: Peaks, limit: Limit) -> str:
        now = peaks.now(limit, gather_bytes=self._gather(state, plan), onload_bytes=self._onload(state, plan))
        if peaks.micro_batches > 1 and asked_micro_batch(state.observation) is None:
            self._say("memory", "The micro-batch is not grown: no one number says how many examples it has.")
            now = replace(now, micro_batches=1)
        found = search(now, _costs(state.diagnosis.facts))
        for note in found.notes:
            self._say("memory", f"Memory plan: {note}.")
        worth = [c for c in found.candidates if self._is_worth_it(c)]
        if not worth:
            self._say("memory", "Memory plan: no plan that fits could gain enough.")
        refused: set[str] = set()
        without: set[str] = set()  # rules whose change broke the training or brought nothing
        error, tried = 1.0, 0  # measured over predicted peak, the most so far
        for candidate in worth:
            if candidate.peak_bytes * error > now.budget_bytes or tried >= _MOST_TRIALS:
                continue
            try:
                group = group_of(state, self._options, peaks, limit, candidate)
            except PlanRefusedError as fault:
                if fault.rule not in refused:
                    self._say("refused", f"Memory plan: {fault.rule} cannot be used: {fault}.")
                refused.add(fault.rule)
                continue
            if (refused | without) & set(group.rules):
                continue
            over = self._tools.over_budget(state, group)
            if over:
                self._needs(state, state.needs_minutes + self._start_minutes(state))  # of the plan itself
                return over
            state.trials += 1
            try:
                job = self._tools.patch(state, group)
            except AutotuneError as fault:
                self._tools.drop(state, group, f"could not be applied: {fault}", False)
                continue
            outcome, peak = self._try_longest(state, group, job, candidate, peaks, now.budget_bytes)
            if outcome == "too large":
                short = peak if peak is not None else limit.bytes
                error = max(error, short / candidate.peak_bytes)
                continue
            if outcome == "wrong":
                without |= {MICRO_BATCH, SWITCH_ON} if MICRO_BATCH in group.rules else set(group.rules)
                continue
            tried += 1
            verdict = self._tools.compare(state, group, job)
            if verdict.accepted:
                self._tools.keep(state, group, job, verdict)
                self._note_peaks(state, candidate, peak)
                self._due = True  # what is left of the headroom may take a larger micro-batch
                return ""
            self._tools.drop(state, group, verdict.sentence, True)
            without |= {MICRO_BATCH, SWITCH_ON} if MICRO_BATCH in group.rules else set(group.rules)
        return ""

    def _try_longest(
        self,
        state: LoopState,
        group: PlanGroup,
        job: PatchedJob,
        candidate: Candidate,
        before: Peaks,
        budget: int,
    ) -> tuple[Literal["fits", "too large", "wrong"], int | None]:
        """Start the plan on the longest batch before anything is timed; what came of it, and the peak."""
        found = self._start(state, group.id, job, False, before.micro_batches // candidate.times)
        predicted = f"predicted {_gib(candidate.peak_bytes)}"
        if found.peaks is None:
            why = "runs out of memory on the longest batch" if found.out_of_memory else found.reason
            self._tools.drop(state, group, f"{why} ({predicted})", False)
            return ("too large" if found.out_of_memory else "wrong"), None
        peak = found.peaks.peak_bytes
        amiss = _amiss(found.peaks, before, candidate)
        if amiss:
            self._tools.drop(state, group, f"the edit does not do what it should: {amiss}", False)
            return "wrong", peak
        if peak > budget:
            why = f"the longest batch takes {_gib(peak)} of at most {_gib(budget)} ({predicted})"
            self._tools.drop(state, group, why, False)
            return "too large", peak
        self._say(
            "memory",
            f"It fits ({candidate.words(before.blocks)}): {predicted}, measured {_gib(peak)}, longest batch.",
            group=group.id,
            predicted_bytes=candidate.peak_bytes,
            peak_bytes=peak,
        )
        return "fits", peak

    def _start(
        self, state: LoopState, name: str, job: PatchedJob, blocks: bool, micro_batches: int = 0
    ) -> Measurement:
        left = None
        if self._options.max_minutes is not None:
            left = self._options.max_minutes - state.minutes()
        found, trial = measure(self._bench(), self._request(state, name, job, blocks, micro_batches), left)
        self._note_start(trial)
        return found

    def _bench(self) -> Bench:
        from autotune.observe.launch import launch
        from autotune.verify.launches import Bench

        start = self._options.watch.launch or launch
        return Bench(self._run / "trials" / "memory", self._options.verify, lambda spec: start(spec, None))

    def _request(
        self, state: LoopState, name: str, job: PatchedJob, blocks: bool, micro_batches: int = 0
    ) -> Request:
        count = micro_batches or max(1, round(_accumulation(state.diagnosis.facts)))
        seed = self._options.verify.seed
        return request_of(arm_of(name, job, warmed=True), micro_batches=count, blocks=blocks, seed=seed)

    def _note_start(self, trial: Trial) -> None:
        made = f"{trial.wall_s:.1f} s" if trial.started_at else "used again"
        self._journal.note(
            "start",
            f"memory, {trial.arm}: {made}, {len(trial.steps)} steps, {trial.outcome}",
            purpose="memory",
            arm=trial.arm,
            label=f"memory/{trial.label}",
            wall_s=trial.wall_s if trial.started_at else 0.0,
            steps=len(trial.steps),
        )

    def _note_peaks(self, state: LoopState, candidate: Candidate, peak: int | None) -> None:
        update = {"predicted_peak_gib": candidate.peak_bytes / _GIB}
        if peak is not None:
            update["longest_peak_gib"] = peak / _GIB
        state.rungs[-1] = state.rungs[-1].model_copy(update=update)

    def _is_worth_it(self, candidate: Candidate) -> bool:
        """A bound that reaches the least gain; without one only after a win, when memory was made for it."""
        ratio = candidate.ratio_upper
        return self._searches > 1 if ratio is None else ratio >= self._options.min_gain_ratio

    def _gather(self, state: LoopState, plan: Plan) -> int | None:
        size = _number(state.diagnosis.facts, "memory.parameters_gib")
        return round(size * _GIB) if size is not None and _offers(plan, GATHERED) else None

    def _onload(self, state: LoopState, plan: Plan) -> int | None:
        facts = state.diagnosis.facts
        share, ranks = _number(facts, "memory.unsharded_static_frac"), _number(facts, "run.world_size")
        device = _number(facts, "memory.device_gib")
        if share is None or not ranks or device is None or not _offers(plan, OFFLOAD):
            return None
        return round(share * device / ranks * _GIB)

    def _say(self, event: str, text: str, **data: object) -> None:
        self._journal.decide(event, text, **data)


def _amiss(seen: Peaks, before: Peaks, candidate: Candidate) -> str:
    """What the started plan does otherwise than planned; empty when nothing."""
    wanted = max(1, before.micro_batches // candidate.times)
    if seen.micro_batches != wanted:
        return f"a step has {seen.micro_batches} micro-batches instead of {wanted}"
    planned = candidate.switch_on or before.blocks
    if planned and seen.blocks != candidate.checkpointed:
        return f"{seen.blocks} blocks are checkpointed instead of {candidate.checkpointed}"
    return ""


def _offers(plan: Plan, rule: str) -> bool:
    return any(group.admissible and rule in group.rules for group in plan.groups)


def _costs(facts: dict[str, FactValue]) -> Costs:
    busy, recompute = _number(facts, "launch.gpu_busy_frac"), _number(facts, "memory.recompute_frac")
    if recompute is not None and busy is not None:  # launches of the recomputed part take idle time, too
        recompute = recompute * busy + FULL_RECOMPUTE_FRAC * (1.0 - busy)
    copies = [_number(facts, "optimizer.step_frac"), _number(facts, "data.host_copies_frac")]
    known = [share for share in copies if share is not None]
    offloaded = _value(facts, "memory.parameters_offloaded") is True
    return Costs(
        recompute_frac=recompute,
        idle_frac=None if busy is None else max(0.0, 1.0 - busy),
        exposed_frac=_number(facts, "comm.exposed_frac"),
        offload_frac=max(known) if known and offloaded else None,
    )


def _checkpoints(state: LoopState) -> bool:
    return _value(state.diagnosis.facts, "memory.checkpointing") is True


def _accumulation(facts: dict[str, FactValue]) -> float:
    return _number(facts, "data.accumulation_steps") or 1.0


def _value(facts: dict[str, FactValue], name: str) -> object:
    fact = facts.get(name)
    return fact.value if fact is not None else None


def _number(facts: dict[str, FactValue], name: str) -> float | None:
    value = _value(facts, name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= 0.1 * _GIB else f"{size / 2**20:.1f} MiB"
