"""The loop: analyze, try the best admissible changes together, keep what is proven, analyze again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.analyze.diagnose import diagnose_launch
from autotune.analyze.watch import OBSERVE, watch
from autotune.errors import AutotuneError, InterruptedRunError, JobFailedError
from autotune.optimize import budget
from autotune.optimize.arms import arm_of, arms_of, finished_look, start_of, widest_tier
from autotune.optimize.drops import Drops
from autotune.optimize.gains import contrast_text, name_of, without_gain
from autotune.optimize.journal import Journal
from autotune.optimize.ladder import (
    counted_again,
    cumulative_arms,
    first_rung,
    kept_rungs,
    measured_as_a_whole,
    refutes,
    timed_beside,
)
from autotune.optimize.memory_stage import MemoryStage, Tools
from autotune.optimize.options import LoopOptions
from autotune.optimize.order import by_gain_per_minute
from autotune.optimize.result import result_of
from autotune.optimize.roofline import NEAR, roof_share
from autotune.optimize.signals import interruptible
from autotune.optimize.state import LoopState
from autotune.records.ladder import Dropped, Ladder
from autotune.records.observation import Observation
from autotune.records.verdict import Verdict
from autotune.store import read_record, write_record
from autotune.verify.arm import progress_line
from autotune.verify.starts import Finished

if TYPE_CHECKING:
    from autotune.optimize.budget import Fit
    from autotune.records.findings import Diagnosis
    from autotune.records.plan import PatchedJob, Plan, PlanGroup
    from autotune.records.terms import Tier
    from autotune.verify.arm import Arm, VerifyOptions


class OptimizeLoop:
    """One optimize run in its folder; `say` shows a line, `status` passing progress."""

    def __init__(
        self,
        run: Path,
        options: LoopOptions,
        *,
        say: Callable[[str], None],
        status: Callable[[str], None],
    ) -> None:
        self._run = run
        self._options = options
        self._status = status
        self._journal = Journal(run, say)
        self._drops = Drops(run, options, self._journal)
        self._memory = MemoryStage(run, options, self._journal, self._tools())

    def go(self, observation: Observation, diagnosis: Diagnosis) -> Ladder:
        """Run to the end or a limit. Raises only what stops everything (baseline failed, files, Ctrl-C)."""
        from autotune.apply.job import materialise

        baseline = materialise([], observation, run=self._run, label="baseline")
        state = LoopState(
            baseline=baseline,
            current=baseline,
            observation=observation,
            diagnosis=diagnosis,
            rungs=[first_rung(diagnosis)],
            looked=self._run / "launches" / OBSERVE,
            original=diagnosis,
            earlier_s=self._journal.seconds_of_starts(),
        )
        try:
            with interruptible():
                reason, finished = self._climb(state)
        except InterruptedRunError:
            self._write(state, "interrupted", "interrupted")
            raise
        except KeyboardInterrupt:
            self._write(state, "interrupted", "interrupted")
            raise InterruptedRunError("interrupted", where=str(self._run)) from None
        except AutotuneError as fault:
            self._write(state, "failed", str(fault))
            raise
        self._journal.decide("stop", f"Stopped: {reason}.")
        return self._write(state, "finished" if finished else "budget", reason)

    def _climb(self, state: LoopState) -> tuple[str, bool]:
        """Rounds of trials; returns why it stopped and whether that was the natural end."""
        while True:
            plan = self._plan(state)
            batch = self._next_batch(state, plan)
            over = ""
            if not batch and self._memory.is_due(state, plan):
                over = self._memory.go(state, plan)
            elif not batch:
                self._confirm_whole(state)
                if state.is_cut():
                    return f"the limit of {self._options.max_minutes or 0:g} minutes is reached", False
                return self._why_done(state, plan), True
            else:
                over = self._over_budget(state, batch)
                if over and len(batch) > 1 and not self._fit(state, batch[:1]).over:
                    self._journal.decide("alone", "The best of them alone fits:")
                    batch, over = batch[:1], self._over_budget(state, batch[:1])
                if not over:
                    self._try(state, batch)
            if over:
                state.untried = budget.untried(state, self._options, self._open_groups(state, plan))
                return over, False

    def _tools(self) -> Tools:
        """What the memory plan tries its groups with."""
        return Tools(
            patch=lambda state, group: self._patched(state, [group], state.trials),
            over_budget=lambda state, group: self._over_budget(state, [group]),
            compare=lambda state, group, job: self._compare(
                state, [(group, job)], widest_tier([group.parity])
            ),
            keep=lambda state, group, job, verdict: self._keep(
                state, [(group, job)], verdict, self._verdict_file(state)
            ),
            drop=self._drop_plan,
        )

    def _drop_plan(self, state: LoopState, group: PlanGroup, reason: str, judged: bool) -> None:
        if judged:
            path = self._verdict_file(state)
            self._drops.tried(state, group, reason, path, read_record(path, Verdict))
        else:
            self._drops.drop(state, group, reason)

    def _verdict_file(self, state: LoopState) -> Path:
        return self._trial_folder(state.trials) / "verdict.json"

    def _plan(self, state: LoopState) -> Plan:
        from autotune.apply.plan import build_plan

        plan = build_plan(
            state.diagnosis,
            state.observation,
            templates_dir=self._options.templates_dir,
            choice=replace(
                self._options.choice,
                wheels=self._options.wheelhouse is not None,
                failed=tuple(state.failed.items()),
                without=tuple(state.without.items()),
                dropped=tuple(rule for entry in state.dropped for rule in entry.rules),
            ),
            base=state.current if state.kept else None,
        )
        write_record(self._run / "plan.json", plan)
        before, state.refused = state.refused, {}
        for group in plan.groups:
            if group.admissible or state.is_closed(group):
                continue
            refused = Dropped(group=group.id, rules=group.rules, reason=group.reason, how="not-tried")
            if before.get(group.id) != refused:
                text = f"Not tried: {name_of(group)}: {group.reason}"
                self._journal.decide("refused", text, group=group.id)
            state.refused[group.id] = refused
        return plan

    def _open_groups(self, state: LoopState, plan: Plan) -> list[PlanGroup]:
        return [
            group
            for group in plan.groups
            if group.admissible and not state.is_closed(group) and self._is_worth_it(state, group)
        ]

    def _next_batch(self, state: LoopState, plan: Plan) -> list[PlanGroup]:
        """The groups to try next, in order. Independent ones go together; a failed set goes one by one."""
        open_groups = [
            group for group in self._open_groups(state, plan) if not self._memory.holds(state, plan, group)
        ]
        if not open_groups:
            return []
        open_groups = by_gain_per_minute(open_groups, state.observation, self._options.verify)
        if open_groups[0].id in state.solo:
            return open_groups[:1]
        return [g for g in open_groups if g.id not in state.solo][: self._options.rungs_per_trial]

    def _is_worth_it(self, state: LoopState, group: PlanGroup) -> bool:
        """A bound above the limit; without any bound only what is called high or critical.

        A job at its own roofline has no use for faster code, only for less work.
        """
        if group.parity in ("bitwise", "numeric") and self._at_roof(state):
            return False
        if group.ratio_upper is not None:
            return group.ratio_upper >= self._options.min_gain_ratio
        loud = {f.rule for f in state.diagnosis.findings if f.severity in ("high", "critical")}
        return bool(loud & set(group.rules))

    def _at_roof(self, state: LoopState) -> bool:
        if state.roof is None or state.roof[0] != state.looked:  # a trace is read once
            state.roof = state.looked, roof_share(state.looked, first_rung(state.diagnosis).step_ms)
        share = state.roof[1]
        return share is not None and share >= NEAR

    def _over_budget(self, state: LoopState, batch: Sequence[PlanGroup]) -> str:
        """Say what is tried next and what it takes; why it may not be, empty when it may."""
        fit = self._fit(state, batch)
        if fit.text:
            self._journal.decide("plan", fit.text, groups=[g.id for g in batch])
        if fit.over:
            state.needs_minutes = max(state.needs_minutes, fit.minutes_most)
        return fit.over

    def _fit(self, state: LoopState, batch: Sequence[PlanGroup]) -> Fit:
        """The next trial against the limits; what an interrupted loop finished of it takes no time."""
        if self._options.max_minutes is None:
            return budget.fit_of(state, self._options, batch)
        number = state.trials + 1
        jobs: list[tuple[PlanGroup, PatchedJob]] = []
        if self._trial_folder(number).is_dir():
            with suppress(AutotuneError):  # the trial itself will say so
                for group in batch:
                    jobs.append((group, self._patched(state, [*(g for g, _ in jobs), group], number)))
        tier = widest_tier(group.parity for group in batch)
        finished = Finished.of(
            self._trial_folder(number),
            self._verify_options(tier),
            self._arms(state, jobs),
            self._reference(state),
        )
        return budget.fit_of(state, self._options, batch, finished)

    def _try(self, state: LoopState, batch: list[PlanGroup]) -> None:
        """One trial of cumulative arms."""
        state.trials += 1
        jobs: list[tuple[PlanGroup, PatchedJob]] = []
        for arm in cumulative_arms(batch):
            group = arm[-1]
            try:
                jobs.append((group, self._patched(state, [*(g for g, _ in jobs), group], state.trials)))
            except AutotuneError as fault:
                if not self._without_package(state, group, fault):
                    self._drops.drop(state, group, f"could not be applied: {fault}")
        if not jobs:
            return
        groups = [group for group, _ in jobs]
        verdict = self._compare(state, jobs, widest_tier(g.parity for g in groups))
        path = self._trial_folder(state.trials) / "verdict.json"
        if verdict.accepted:
            weak = without_gain(verdict, groups)
            for group in weak:
                why = contrast_text(verdict, groups, group)
                self._drops.drop(state, group, f"brought nothing beside the others: {why}", path)
            strong = list(takewhile(lambda pair: pair[0] not in weak, jobs))
            if strong and len(strong) < len(jobs):
                # What is kept is what is judged: the starts of these arms are reused, their parity is added.
                verdict = self._compare(state, strong, widest_tier(g.parity for g, _ in strong))
            if strong and verdict.accepted:
                self._keep(state, strong, verdict, path)
            return
        self._drops.after_failed(state, groups, verdict, path)

    def _without_package(self, state: LoopState, group: PlanGroup, fault: AutotuneError) -> bool:
        """Note a package that could not be had: the next plan takes the way behind it, if there is one."""
        from autotune.apply.packages import PackageFailedError
        from autotune.facts.recipes import pinned

        if not isinstance(fault, PackageFailedError):
            return False
        asked = fault.requirement
        names = [n for n in group.packages if n not in state.failed and asked in (n, *pinned(n))]
        if not names:
            return False  # something a package needs: no way without it is known
        state.failed[names[0]] = str(fault)
        self._journal.decide("note", f"{name_of(group)}: {fault} Looking for a way without.", group=group.id)
        return True

    def _patched(self, state: LoopState, groups: list[PlanGroup], trial: int) -> PatchedJob:
        from autotune.apply.job import materialise

        return materialise(
            groups,
            state.observation,
            run=self._run,
            label=f"trial-{trial:03d}-{len(groups)}",
            base=state.current if state.kept else None,
            templates_dir=self._options.templates_dir,
            wheelhouse=self._options.wheelhouse,
            progress=self._status,
        )

    def _compare(self, state: LoopState, jobs: list[tuple[PlanGroup, PatchedJob]], tier: Tier) -> Verdict:
        return self._run_comparison(self._arms(state, jobs), tier, self._trial_folder(state.trials), state)

    def _arms(self, state: LoopState, jobs: Sequence[tuple[PlanGroup, PatchedJob]]) -> list[Arm]:
        return arms_of(state.current, jobs, self._options.rules)

    def _verify_options(self, tier: Tier) -> VerifyOptions:
        return replace(self._options.verify, tier=tier, shared_folder=self._run / "trials" / "parity")

    def _run_comparison(self, arms: list[Arm], tier: Tier, folder: Path, state: LoopState) -> Verdict:
        from autotune.observe.launch import launch
        from autotune.verify.trial import run_comparison

        left = None
        if self._options.max_minutes is not None:
            left = max(1.0, self._options.max_minutes - state.minutes())
        options = replace(self._verify_options(tier), max_minutes=left or self._options.verify.max_minutes)
        verdict = run_comparison(
            arms,
            folder=folder,
            options=options,
            launch=lambda spec: (self._options.watch.launch or launch)(spec, None),
            progress=lambda p: self._status(progress_line(p)),
            on_trial=self._journal.started,
            reference=self._reference(state),
        )
        for note in budget.notes_of(verdict, folder):
            if note not in state.notes:
                state.notes.append(note)
                self._journal.decide("note", f"Note, {note}")
        budget.note_time(state, self._options, verdict, len(arms) - 1)
        return verdict

    def _reference(self, state: LoopState) -> Arm:
        """Half precision is judged by the unchanged job, unless what was kept trains otherwise on purpose."""
        alike = all(group.parity != "statistical" for group in state.kept)
        return arm_of("as it was", state.baseline if alike else state.current, warmed=True)

    def _keep(
        self, state: LoopState, jobs: list[tuple[PlanGroup, PatchedJob]], verdict: Verdict, path: Path
    ) -> None:
        groups = [group for group, _ in jobs]
        state.rungs[-1] = timed_beside(state.rungs[-1], verdict)
        state.rungs += kept_rungs(groups, verdict, path, self._run, state.rungs[-1])
        state.rounds_kept += 1
        state.kept += groups
        state.current = jobs[-1][1]
        write_record(self._run / "patched_job.json", state.current)
        names = "; ".join(name_of(group) for group in groups)
        self._journal.decide("kept", f"Kept: {names}. {verdict.sentence}", groups=[g.id for g in groups])
        self._memory.after_kept(verdict)
        self._look_again(state, verdict)

    def _look_again(self, state: LoopState, verdict: Verdict) -> None:
        """Profile the job as it is now: mending one cause exposes the next.

        The profile that proved the change to be in effect is one of the same job.
        """
        proof = [t for t in verdict.trials if t.purpose == "live" and t.outcome == "finished"]
        if proof and proof[-1].arm == verdict.arms[-1].name:
            folder = self._trial_folder(state.trials) / proof[-1].label
            label = f"../{folder.relative_to(self._run)}"
            state.observation = read_record(folder / "observation.json", Observation)
        else:
            label = f"look-{state.trials:03d}"
            folder = self._run / "launches" / label
            found = finished_look(folder, state.current)
            wall_s = 0.0
            if found is None:
                self._status("looking again at the patched job")
                found = watch(start_of(state.current), folder, self._options.watch, None)
                wall_s = round(found.wall_s, 3)
            state.observation = found
            text = f"profile: {wall_s:.1f} s" if wall_s else "profile: used again"
            self._journal.note("start", text, purpose="look", label=label, wall_s=wall_s)
        state.diagnosis = diagnose_launch(self._run, label, self._options.rules).diagnosis
        state.looked = folder
        state.rungs[-1] = counted_again(state.rungs[-1], state.diagnosis)
        self._journal.decide("analyzed", f"The patched job: {state.diagnosis.verdict}")

    def _confirm_whole(self, state: LoopState) -> None:
        """When rungs come from several trials, the whole is compared with the job as it was once more."""
        if state.rounds_kept < 2:
            return
        arms = [
            arm_of("as it was", state.baseline, warmed=True),
            arm_of("all kept", state.current, warmed=True),
        ]
        verdict = self._run_comparison(
            arms, widest_tier(g.parity for g in state.kept), self._run / "trials" / "whole", state
        )
        state.rungs[-1] = measured_as_a_whole(state.rungs[-1], verdict)
        self._journal.decide("whole", f"All kept changes against the job as it was: {verdict.sentence}")
        if refutes(verdict):
            raise JobFailedError(
                f"the kept changes do not hold up together: {verdict.sentence}",
                where=str(self._run / "trials" / "whole" / "verdict.json"),
                hint="apply single changes with autotune apply --select RULE",
                code="whole-refuted",
            )

    def _trial_folder(self, number: int) -> Path:
        return self._run / "trials" / f"{number:03d}"

    def _why_done(self, state: LoopState, plan: Plan) -> str:
        least = 100 * (self._options.min_gain_ratio - 1)
        if self._at_roof(state):
            return f"the job is within {1 - NEAR:.0%} of its own roofline"
        if not state.kept and not state.left_out() and not plan.groups:
            count = len(state.diagnosis.undecided)
            unsure = f", as far as can be told: {count} checks are undecided" if count else ""
            return f"nothing to do{unsure}"
        return f"nothing admissible is left that could gain {least:.0f} %"

    def _write(self, state: LoopState, how: str, reason: str) -> Ladder:
        ladder = result_of(state, self._options, self._run.name, how, reason)
        write_record(self._run / "ladder.json", ladder)
        return ladder
