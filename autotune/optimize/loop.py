"""The loop: analyze, try the best admissible changes together, keep what is proven, analyze again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.analyze.diagnose import diagnose_launch
from autotune.analyze.watch import watch
from autotune.errors import AutotuneError, InterruptedRunError, JobFailedError
from autotune.optimize.arms import arm_of, start_of, widest_tier
from autotune.optimize.journal import Journal
from autotune.optimize.ladder import cumulative_arms, first_rung, kept_rungs, timed_beside
from autotune.optimize.live import live_check_for
from autotune.optimize.options import LoopOptions
from autotune.optimize.state import LoopState
from autotune.records.ladder import Dropped, Ladder
from autotune.records.observation import Observation
from autotune.store import read_record, write_record
from autotune.verify.arm import progress_line

if TYPE_CHECKING:
    from autotune.records.findings import Diagnosis
    from autotune.records.plan import PatchedJob, Plan, PlanGroup
    from autotune.records.terms import Tier
    from autotune.records.verdict import Trial, Verdict
    from autotune.verify.arm import Arm


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
        )
        try:
            reason, finished = self._climb(state)
        except (KeyboardInterrupt, InterruptedRunError):
            self._write(state, "interrupted", "interrupted")
            raise
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
            if not batch:
                self._confirm_whole(state)
                return self._why_done(state, plan), True
            over = self._over_budget(state, batch)
            if over:
                return over, False
            self._try(state, batch)

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
            ),
            base=state.current if state.kept else None,
        )
        write_record(self._run / "plan.json", plan)
        for group in plan.groups:
            if not group.admissible and not state.is_closed(group):
                self._journal.decide("refused", f"Not tried: {_name(group)}: {group.reason}", group=group.id)
                state.dropped.append(Dropped(group=group.id, rules=group.rules, reason=group.reason))
        return plan

    def _next_batch(self, state: LoopState, plan: Plan) -> list[PlanGroup]:
        """The groups to try next, in order. Independent ones go together; a failed set goes one by one."""
        open_groups = [
            group
            for group in plan.groups
            if group.admissible and not state.is_closed(group) and self._is_worth_it(state, group)
        ]
        if not open_groups:
            return []
        if open_groups[0].id in state.solo:
            return open_groups[:1]
        return [g for g in open_groups if g.id not in state.solo][: self._options.rungs_per_trial]

    def _is_worth_it(self, state: LoopState, group: PlanGroup) -> bool:
        """A bound above the limit; without any bound only what is called high or critical."""
        if group.ratio_upper is not None:
            return group.ratio_upper >= self._options.min_gain_ratio
        loud = {f.rule for f in state.diagnosis.findings if f.severity in ("high", "critical")}
        return bool(loud & set(group.rules))

    def _over_budget(self, state: LoopState, batch: Sequence[PlanGroup]) -> str:
        from autotune.verify.estimate import estimate_minutes

        options = self._options
        if options.max_trials is not None and state.trials >= options.max_trials:
            return f"the limit of {options.max_trials} trials is reached"
        plan = estimate_minutes(state.observation, options.verify, arms=len(batch) + 1)
        names = "; ".join(
            f"{_name(g)} (at most {g.ratio_upper:.2f}x)" if g.ratio_upper else _name(g) for g in batch
        )
        cost = "The job's own times are not known, so neither is what this takes."
        if plan is not None:
            cost = (
                f"Expected {plan.minutes_least:.1f} to {plan.minutes_most:.1f} minutes, "
                f"{plan.launches_least} or more starts of the job."
            )
        text = f"Trial {state.trials + 1}: {names}. {cost}"
        self._journal.decide("plan", text, groups=[g.id for g in batch])
        if plan is None or options.max_minutes is None:
            return ""
        if state.minutes() + plan.minutes_least > options.max_minutes:
            return f"the next trial does not fit into the limit of {options.max_minutes:g} minutes"
        return ""

    def _try(self, state: LoopState, batch: list[PlanGroup]) -> None:
        """One trial of cumulative arms."""
        state.trials += 1
        jobs: list[tuple[PlanGroup, PatchedJob]] = []
        for arm in cumulative_arms(batch):
            group = arm[-1]
            try:
                jobs.append((group, self._patched(state, [g for g, _ in jobs] + [group], len(jobs))))
            except AutotuneError as fault:
                if not self._without_package(state, group, fault):
                    self._drop(state, group, f"could not be applied: {fault}")
        if not jobs:
            return
        groups = [group for group, _ in jobs]
        verdict = self._compare(state, jobs, widest_tier(g.parity for g in groups))
        path = self._trial_folder(state.trials) / "verdict.json"
        if verdict.accepted:
            weak = _without_gain(verdict, groups)
            for group in weak:
                why = _contrast_text(verdict, groups, group)
                self._drop(state, group, f"brought nothing beside the others: {why}", path)
            strong = list(takewhile(lambda pair: pair[0] not in weak, jobs))
            if strong and len(strong) < len(jobs):
                # What is kept is what is judged: the starts of these arms are reused, their parity is added.
                verdict = self._compare(state, strong, widest_tier(g.parity for g, _ in strong))
            if strong and verdict.accepted:
                self._keep(state, strong, verdict, path)
            return
        if len(groups) > 1:
            state.solo.update(group.id for group in groups)
            self._journal.decide(
                "split",
                f"Together: {verdict.sentence} Trying them one by one.",
                groups=[g.id for g in groups],
            )
            return
        self._drop(state, groups[0], verdict.sentence, path)

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
        self._journal.decide("note", f"{_name(group)}: {fault} Looking for a way without.", group=group.id)
        return True

    def _patched(self, state: LoopState, groups: list[PlanGroup], index: int) -> PatchedJob:
        from autotune.apply.job import materialise

        return materialise(
            groups,
            state.observation,
            run=self._run,
            label=f"trial-{state.trials:03d}-{index + 1}",
            base=state.current if state.kept else None,
            templates_dir=self._options.templates_dir,
            wheelhouse=self._options.wheelhouse,
            progress=self._status,
        )

    def _compare(self, state: LoopState, jobs: list[tuple[PlanGroup, PatchedJob]], tier: Tier) -> Verdict:
        live = live_check_for([group for group, _ in jobs], self._options.rules)
        last = jobs[-1][1]
        arms = [arm_of("as it is", state.current, warmed=True)]
        arms += [arm_of(group.id, job, live_check=live if job is last else None) for group, job in jobs]
        return self._run_comparison(arms, tier, self._trial_folder(state.trials), state)

    def _run_comparison(self, arms: list[Arm], tier: Tier, folder: Path, state: LoopState) -> Verdict:
        from dataclasses import replace

        from autotune.observe.launch import launch
        from autotune.verify.trial import run_comparison

        left = None
        if self._options.max_minutes is not None:
            left = max(1.0, self._options.max_minutes - state.minutes())
        options = replace(
            self._options.verify,
            tier=tier,
            max_minutes=left or self._options.verify.max_minutes,
            shared_folder=self._run / "trials" / "parity",
        )
        return run_comparison(
            arms,
            folder=folder,
            options=options,
            launch=lambda spec: (self._options.watch.launch or launch)(spec, None),
            progress=lambda p: self._status(progress_line(p)),
            on_trial=self._note_start,
            reference=self._reference(state),
        )

    def _reference(self, state: LoopState) -> Arm:
        """Half precision is judged by the unchanged job, unless what was kept trains otherwise on purpose."""
        alike = all(group.parity != "statistical" for group in state.kept)
        return arm_of("as it was", state.baseline if alike else state.current, warmed=True)

    def _note_start(self, trial: Trial) -> None:
        """Each start of the job with what it took: the journal shows where the minutes went."""
        made = "used again" if trial.reused else f"{trial.wall_s:.1f} s"
        block = f" of block {trial.block}" if trial.block else ""
        self._journal.note(
            "start",
            f"{trial.purpose}{block}, {trial.arm}: {made}, {len(trial.steps)} steps, {trial.outcome}",
            purpose=trial.purpose,
            arm=trial.arm,
            label=trial.label,
            wall_s=0.0 if trial.reused else trial.wall_s,
            startup_s=trial.startup_s,
            steps=len(trial.steps),
        )

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
        names = "; ".join(_name(group) for group in groups)
        self._journal.decide("kept", f"Kept: {names}. {verdict.sentence}", groups=[g.id for g in groups])
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
            self._status("looking again at the patched job")
            state.observation = watch(start_of(state.current), folder, self._options.watch, None)
            wall_s = round(state.observation.wall_s, 3)
            self._journal.note(
                "start", f"profile: {wall_s:.1f} s", purpose="look", label=label, wall_s=wall_s
            )
        state.diagnosis = diagnose_launch(self._run, label, self._options.rules).diagnosis
        self._journal.decide("analyzed", f"The patched job: {state.diagnosis.verdict}")

    def _confirm_whole(self, state: LoopState) -> None:
        """When rungs come from several trials, the whole is compared with the job as it was once more."""
        if state.rounds_kept < 2:
            return
        arms = [arm_of("as it was", state.baseline), arm_of("all kept", state.current)]
        verdict = self._run_comparison(
            arms, widest_tier(g.parity for g in state.kept), self._run / "trials" / "whole", state
        )
        last = state.rungs[-1]
        state.rungs[-1] = last.model_copy(
            update={
                "ratio_to_first": verdict.ratio,
                "interval_to_first": verdict.interval,
                "parity": verdict.parity.sentence,
            }
        )
        self._journal.decide("whole", f"All kept changes against the job as it was: {verdict.sentence}")
        if not verdict.accepted:
            raise JobFailedError(
                f"the kept changes do not hold up together: {verdict.sentence}",
                where=str(self._run / "trials" / "whole" / "verdict.json"),
                hint="apply single changes with autotune apply --select RULE",
                code="whole-refuted",
            )

    def _drop(self, state: LoopState, group: PlanGroup, reason: str, path: Path | None = None) -> None:
        relative = str(path.relative_to(self._run)) if path is not None else None
        state.dropped.append(Dropped(group=group.id, rules=group.rules, reason=reason, verdict=relative))
        self._journal.decide("dropped", f"Dropped: {_name(group)}: {reason}", group=group.id)

    def _trial_folder(self, number: int) -> Path:
        return self._run / "trials" / f"{number:03d}"

    def _why_done(self, state: LoopState, plan: Plan) -> str:
        least = 100 * (self._options.min_gain_ratio - 1)
        if not state.kept and not state.dropped and not plan.groups:
            return "nothing to do"
        return f"nothing admissible is left that could gain {least:.0f} %"

    def _write(self, state: LoopState, how: str, reason: str) -> Ladder:
        ladder = Ladder(
            run=self._run.name,
            state=how,  # type: ignore[arg-type]
            rungs=state.rungs,
            dropped=state.dropped,
            stop_reason=reason,
            trials=state.trials,
            minutes=round(state.minutes(), 2),
            outcome="faster" if state.kept else "nothing-kept" if state.dropped else "nothing-to-do",
        )
        write_record(self._run / "ladder.json", ladder)
        return ladder


def _without_gain(verdict: Verdict, groups: Sequence[PlanGroup]) -> list[PlanGroup]:
    """Rungs that did not make the arm before them faster; none when there is one rung."""
    if len(groups) < 2:
        return []
    return [group for group in groups if not _made_faster(verdict, groups, group)]


def _made_faster(verdict: Verdict, groups: Sequence[PlanGroup], group: PlanGroup) -> bool:
    index = groups.index(group)
    before = "as it is" if index == 0 else groups[index - 1].id
    for contrast in verdict.contrasts:
        if contrast.reference == before and contrast.candidate == group.id:
            return contrast.outcome == "faster"
    return False


def _contrast_text(verdict: Verdict, groups: Sequence[PlanGroup], group: PlanGroup) -> str:
    index = groups.index(group)
    before = "as it is" if index == 0 else groups[index - 1].id
    for contrast in verdict.contrasts:
        if contrast.reference == before and contrast.candidate == group.id:
            return contrast.sentence
    return "it was not measured"


def _name(group: PlanGroup) -> str:
    return " + ".join(member.title for member in group.members) or group.id
