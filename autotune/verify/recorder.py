"""Makes launches for a comparison and keeps the session: what ran, on which machine, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autotune.errors import JobFailedError
from autotune.observe.outcome import last_words, require_steps
from autotune.records.verdict import LiveCheck, Trial
from autotune.verify.arm import Arm, Progress
from autotune.verify.figures import steadiness
from autotune.verify.kernels import slow_kernels
from autotune.verify.launches import Bench, Request
from autotune.verify.memory import worst_case_bytes
from autotune.verify.steady import compiles_to_the_end
from autotune.verify.verdict import Session

if TYPE_CHECKING:
    from autotune.records.observation import Observation


# added to the attempt of a launch that crashed; attempts that gave no figure count by one
_SECOND_LIFE = 10


class Ended(Exception):
    """Nothing further is worth launching; the reason is in the session."""


@dataclass
class Recorder:
    """One comparison's launches, in order."""

    arms: tuple[Arm, ...]
    bench: Bench
    session: Session
    progress: Callable[[Progress], None]
    max_minutes: float | None
    planned: int
    """Launches it takes at least."""
    on_trial: Callable[[Trial], None] = lambda trial: None
    """Told of each launch when it has ended."""

    def minutes_left(self) -> float | None:
        """What is left of the budget; None without one."""
        if self.max_minutes is None:
            return None
        spent_s = sum(trial.wall_s for trial in self.session.trials if trial.started_at)
        return max(0.0, self.max_minutes - spent_s / 60)

    def run(self, request: Request, *, may_settle: bool = False) -> tuple[Observation, Trial]:
        """Make one launch and record it. Raises Ended when it failed, JobFailedError for the baseline.

        A crash is believed when it happens twice, unless nothing shows that the job runs at all.
        """
        if request.arm is self.arms[0]:
            request = replace(request, redo_crashed=True)
        works = any(t.arm == self.arms[0].name and t.outcome == "finished" for t in self.session.trials)
        observation, trial = self._made(request)
        if works and trial.outcome == "crashed" and "out of memory" not in trial.reason:
            self.session.notes.append(f"{trial.label} crashed and was started again: {trial.reason}")
            observation, trial = self._made(replace(request, attempt=request.attempt + _SECOND_LIFE))
        self._remember(request.arm, observation, trial)
        if trial.outcome == "finished":
            self._check_fingerprint(request.arm, trial)
            self._check_kernels(request.arm, observation)
            return observation, trial
        if request.arm is self.arms[0]:
            self._baseline_failed(observation, trial)
        if not (may_settle and self.bench.may_settle(trial)):
            raise Ended
        return observation, trial

    def run_reference(self, request: Request) -> tuple[Observation, Trial]:
        """Make a launch that may fail: without it something stays unknown, and the comparison goes on."""
        return self._made(request)

    def _made(self, request: Request) -> tuple[Observation, Trial]:
        done, planned = len(self.session.trials), self.planned
        detail = f"{request.arm.name}" + (f", block {request.block}" if request.block else "")
        self.progress(
            Progress(request.purpose, done + 1, max(planned, done + 1), detail, self.minutes_left())
        )
        observation, trial = self.bench.run(request, self.minutes_left())
        if request.arm in self.arms:
            trial = self._compiling(request, self._all_ranks(request.arm, trial))
        self.session.trials.append(trial)
        self.on_trial(trial)
        return observation, trial

    def _compiling(self, request: Request, trial: Trial) -> Trial:
        """A baseline that compiles to its end is timed with it: without, it could never be compared.

        Not so a candidate, which may settle after the steps that were seen.
        """
        if request.arm is not self.arms[0] or trial.outcome != "no-steady-state":
            return trial
        if not compiles_to_the_end([step.tags for step in trial.steps]):
            return trial
        counted = trial.model_copy(update={"compiling": True, "outcome": "finished", "reason": ""})
        return trial if steadiness(counted).start is None else counted

    def _all_ranks(self, arm: Arm, trial: Trial) -> Trial:
        """A candidate on fewer ranks than the baseline has lost some, whatever the launcher said."""
        before = max((t.ranks for t in self.session.trials if t.arm == self.arms[0].name), default=0)
        if arm is self.arms[0] or trial.outcome != "finished" or trial.ranks >= before:
            return trial
        reason = f"only {trial.ranks} of {before} ranks took training steps"
        return trial.model_copy(update={"outcome": "crashed", "reason": reason})

    def _baseline_failed(self, observation: Observation, trial: Trial) -> None:
        """A baseline without steps stops everything; one that does not settle is an outcome."""
        require_steps(observation, 1, where=str(self.bench.folder / trial.label))
        if trial.outcome == "crashed":
            tail = last_words(observation.log_tail)
            raise JobFailedError(
                f"the unchanged job failed: {trial.reason}",
                where=str(self.bench.folder / trial.label / "train.log"),
                hint=f"its last line: {tail}" if tail else None,
            )

    def _check_fingerprint(self, arm: Arm, trial: Trial) -> None:
        """Every rank of a changed arm must have run the edited files, and no rank of the baseline."""
        if not arm.fingerprint:
            return
        wrong = [f for f in trial.fingerprints if f != arm.fingerprint]
        if not wrong:
            if not any(check.arm == arm.name for check in self.session.live):
                self.note_live(arm, [], ["every rank ran the edited files"])
            return
        missing = all(f is None for f in wrong)
        what = "did not load the edited files" if missing else "ran other files than the edited ones"
        fault = f"{len(wrong)} of {len(trial.fingerprints)} ranks {what} ({trial.label})"
        self.note_live(arm, [fault], [], fingerprint="missing" if missing else "different")
        raise Ended

    def _check_kernels(self, arm: Arm, observation: Observation) -> None:
        """A package that is not used makes nothing faster, and packing without it lets examples leak."""
        faults = slow_kernels(observation, arm.fused_roles)
        if faults:
            self.note_live(arm, faults, [])
            raise Ended

    def note_live(
        self,
        arm: Arm,
        faults: Sequence[str],
        checked: Sequence[str],
        *,
        rules: Sequence[str] = (),
        fingerprint: str | None = None,
    ) -> None:
        state = fingerprint or ("reported" if arm.fingerprint else "not-asked")
        self.session.live.append(
            LiveCheck.model_validate(
                {
                    "arm": arm.name,
                    "fingerprint": state,
                    "faults": [*faults],
                    "rules": [*rules],
                    "checked": [*checked],
                }
            )
        )

    def _remember(self, arm: Arm, observation: Observation, trial: Trial) -> None:
        """Software and machine from the first launch of each arm, wall time of the baseline."""
        if arm is self.arms[0]:
            self.bench.longest_s = max(self.bench.longest_s or 0.0, trial.wall_s)
        if not observation.ranks:
            return
        software = observation.ranks[0].environment
        place = self.arms.index(arm)
        record = self.session.arms[place]
        worst = max(record.worst_case_bytes or 0, worst_case_bytes(observation) or 0)
        update = {"software": record.software or software, "worst_case_bytes": worst or None}
        self.session.arms[place] = record.model_copy(update=update)
        if not self.session.machine:
            device = software.device_name or software.device_type
            cores = f", {software.cpu_cores:g} cores" if software.cpu_cores else ""
            count = f"{software.device_count} x " if software.device_count > 1 else ""
            self.session.machine = f"{count}{device}{cores}"
