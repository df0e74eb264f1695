"""Runs the launches of a comparison and writes its verdict.

Order: parity in processes of its own (the baseline twice, for the tolerance), a proof that the change is in
effect, then timing in complete blocks, AB BA AB. Cheap refusals come first. Everything finished is kept on
disk, so a comparison that was killed goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import store
from autotune.errors import JobFailedError
from autotune.observe.outcome import require_steps
from autotune.records.verdict import ArmRecord, LiveCheck, Settings, Trial, Verdict
from autotune.verify import stats
from autotune.verify.arm import Arm, Progress, ProgressCallback, VerifyOptions
from autotune.verify.evidence import parity_evidence
from autotune.verify.launches import Bench, LaunchFunction, Request
from autotune.verify.logged import read_logged_losses
from autotune.verify.measure import measure
from autotune.verify.memory import worst_case_bytes
from autotune.verify.verdict import Session, conclude, find_failure, judge_parity

if TYPE_CHECKING:
    from autotune.records.observation import Observation

VERDICT_FILE = "verdict.json"
_SPARE_BLOCKS = 2  # blocks that may be set aside and run again
_RETRIES = 2  # attempts at a launch that did not settle


class _Ended(Exception):
    """Nothing further is worth launching; the reason is in the session."""


def run_comparison(
    arms: Sequence[Arm],
    *,
    folder: Path,
    options: VerifyOptions,
    launch: LaunchFunction,
    progress: ProgressCallback | None = None,
) -> Verdict:
    """Compare the arms (the first is the baseline) and write `folder/verdict.json`.

    Raises JobFailedError or NotObservedError when the baseline gives no training steps, FilesError when the
    folder cannot be written.
    """
    if len(arms) < 2 or len({arm.name for arm in arms}) != len(arms):
        raise ValueError("a comparison needs two or more arms with names of their own")
    folder.mkdir(parents=True, exist_ok=True)
    run = _Comparison(tuple(arms), Bench(folder, options, launch), options, progress or _silent)
    try:
        run.parity()
        run.prove_live()
        if options.max_pairs > 0:
            run.warm()
            run.time()
    except _Ended:
        pass
    verdict = conclude(run.session)
    store.write_record(folder / VERDICT_FILE, verdict)
    return verdict


def _silent(state: Progress) -> None:
    pass


@dataclass
class _Comparison:
    """The state of one comparison while it runs."""

    arms: tuple[Arm, ...]
    bench: Bench
    options: VerifyOptions
    progress: Callable[[Progress], None]
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        settings = Settings(
            tier=options.tier,
            min_pairs=options.min_pairs,
            max_pairs=options.max_pairs,
            steps=options.steps,
            warmup_steps=options.warmup_steps,
            parity_steps=options.parity_steps,
            seed=options.seed,
            seeds=list(options.seeds) if options.tier == "statistical" else [],
            max_minutes=options.max_minutes,
            self_check=options.self_check,
        )
        self.session = Session([_arm_record(arm) for arm in self.arms], settings)

    # -- phases ------------------------------------------------------------------------------------------

    def parity(self) -> None:
        """The baseline twice and the last arm once, or both arms at every seed."""
        tier = self.options.tier
        if tier is None:
            return
        first, last = self.arms[0], self.arms[-1]
        if tier == "statistical":
            plan: list[tuple[Arm, int | None]]
            plan = [(arm, seed) for seed in self.options.seeds for arm in (first, last)]
        else:
            plan = [(first, self.options.seed), (first, self.options.seed), (last, self.options.seed)]
        deterministic = tier == "bitwise" and self._runs_deterministically()
        counts: dict[str, int] = {}
        for arm, seed in plan:
            counts[arm.name] = counts.get(arm.name, 0) + 1
            request = Request(
                purpose="parity",
                arm=arm,
                number=counts[arm.name],
                seed=seed,
                deterministic=deterministic,
                isolation=tier != "bitwise",
            )
            observation, trial = self._run(request)
            self.session.evidence.append(
                parity_evidence(
                    observation,
                    label=trial.label,
                    arm=arm.name,
                    seed=seed,
                    deterministic=deterministic,
                    logged=read_logged_losses(self.bench.folder / trial.label / "train.log"),
                )
            )
        result = judge_parity(self.session.evidence, self.session.settings, self.session.names)
        if result.outcome == "broken" and not self.options.speed_when_broken:
            raise _Ended

    def _runs_deterministically(self) -> bool:
        """Whether the baseline bears torch's deterministic algorithms: some operations have none."""
        request = Request(
            purpose="parity", arm=self.arms[0], seed=self.options.seed, deterministic=True, isolation=False
        )
        _, trial = self.bench.run(request)
        if trial.outcome != "crashed":
            return True
        self.session.notes.append(f"compared without deterministic algorithms: {trial.reason}")
        return False

    def warm(self) -> None:
        """Fill the caches of each arm in a launch that is not timed, where parity has not done it."""
        for arm in self.arms:
            if not arm.warmed and not self._warmed_by_parity(arm):
                self._run(Request(purpose="warm", arm=arm, seed=self.options.seed))

    def _warmed_by_parity(self, arm: Arm) -> bool:
        """Parity ran the same code; on a GPU, or where it compiled, its kernels may be other ones."""
        own = [t for t in self.session.trials if t.arm == arm.name and t.purpose == "parity"]
        software = next((a.software for a in self.session.arms if a.name == arm.name), None)
        compiled = any("compile" in step.tags for trial in own for step in trial.steps)
        return bool(own) and not compiled and software is not None and software.device_type == "cpu"

    def prove_live(self) -> None:
        """A fresh profile of each changed arm, where the caller can tell from it."""
        for arm in self.arms[1:]:
            if arm.live_check is None:
                continue
            observation, trial = self._run(Request(purpose="live", arm=arm, seed=self.options.seed))
            findings = arm.live_check(observation, self.bench.folder / trial.label)
            self._note_live(arm, list(findings.faults), list(findings.checked))
            if findings.faults:
                raise _Ended

    def time(self) -> None:
        """Blocks until the interval is narrow enough, or pairs or minutes run out."""
        names = self.session.names
        by_name = {arm.name: arm for arm in self.arms}
        most = self.options.max_pairs + _SPARE_BLOCKS
        for number in range(1, most + 1):
            if self._out_of_time(number):
                break
            for position, name in enumerate(stats.block_order(names, number)):
                self._run_timed(by_name[name], number, position)
            if self._measured_enough():
                break

    # -- one launch --------------------------------------------------------------------------------------

    def _run_timed(self, arm: Arm, number: int, position: int) -> None:
        for attempt in range(1, _RETRIES + 1):
            request = Request(
                purpose="timing",
                arm=arm,
                block=number,
                position=position,
                attempt=attempt,
                seed=self.options.seed,
            )
            _, trial = self._run(request, may_retry=attempt < _RETRIES)
            if trial.outcome == "finished":
                return

    def _run(self, request: Request, *, may_retry: bool = False) -> tuple[Observation, Trial]:
        """Make one launch and record it; ends the comparison when it failed."""
        done, planned = len(self.session.trials), self._planned()
        detail = f"{request.arm.name}" + (f", block {request.block}" if request.block else "")
        self.progress(
            Progress(request.purpose, done + 1, max(planned, done + 1), detail, self._minutes_left())
        )
        observation, trial = self.bench.run(request)
        self.session.trials.append(trial)
        self._remember(request.arm, observation, trial)
        if trial.outcome == "finished":
            self._check_fingerprint(request.arm, trial)
            return observation, trial
        if request.arm is self.arms[0]:
            self._baseline_failed(observation, trial)
        if not (may_retry and trial.outcome == "no-steady-state"):
            raise _Ended
        return observation, trial

    def _baseline_failed(self, observation: Observation, trial: Trial) -> None:
        """A baseline without steps stops everything; one that does not settle is an outcome."""
        require_steps(observation, 1, where=str(self.bench.folder / trial.label))
        if trial.outcome == "crashed":
            tail = next((line.strip() for line in reversed(observation.log_tail) if line.strip()), "")
            raise JobFailedError(
                f"the unchanged job failed: {trial.reason}",
                where=str(self.bench.folder / trial.label / "train.log"),
                hint=f"its last line: {tail[:200]}" if tail else None,
            )

    def _check_fingerprint(self, arm: Arm, trial: Trial) -> None:
        """Every rank of a changed arm must have run the edited files, and no rank of the baseline."""
        if not arm.fingerprint:
            return
        wrong = [f for f in trial.fingerprints if f != arm.fingerprint]
        if not wrong:
            if not any(check.arm == arm.name for check in self.session.live):
                self._note_live(arm, [], ["every rank ran the edited files"])
            return
        missing = all(f is None for f in wrong)
        what = "did not load the edited files" if missing else "ran other files than the edited ones"
        fault = f"{len(wrong)} of {len(trial.fingerprints)} ranks {what} ({trial.label})"
        self._note_live(arm, [fault], [], fingerprint="missing" if missing else "different")
        raise _Ended

    def _note_live(
        self, arm: Arm, faults: list[str], checked: list[str], *, fingerprint: str | None = None
    ) -> None:
        state = fingerprint or ("reported" if arm.fingerprint else "not-asked")
        self.session.live.append(
            LiveCheck.model_validate(
                {"arm": arm.name, "fingerprint": state, "faults": faults, "checked": checked}
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

    # -- when to stop ------------------------------------------------------------------------------------

    def _measured_enough(self) -> bool:
        if find_failure(self.session.trials):
            return True
        names = self.session.names
        measured = measure(self.session.trials, names)
        return all(
            stats.enough(
                measured.pairs(names[0], name),
                min_pairs=self.options.min_pairs,
                max_pairs=self.options.max_pairs,
            )
            for name in names[1:]
        )

    def _spent_s(self) -> float:
        return sum(trial.wall_s for trial in self.session.trials)

    def _minutes_left(self) -> float | None:
        if self.options.max_minutes is None:
            return None
        return max(0.0, self.options.max_minutes - self._spent_s() / 60)

    def _out_of_time(self, number: int) -> bool:
        """Whether another block would overrun the minutes; said in the notes."""
        left = self._minutes_left()
        if left is None:
            return False
        last = [t.wall_s for t in self.session.trials if t.purpose in ("timing", "parity", "warm")]
        expected = len(self.arms) * (sum(last[-2:]) / len(last[-2:]) if last else 0.0) / 60
        if expected <= left:
            return False
        self.session.notes.append(
            f"stopped after {number - 1} blocks: another takes about {expected:.1f} minutes and "
            f"{left:.1f} of {self.options.max_minutes:g} are left"
        )
        return True

    def _planned(self) -> int:
        """The least number of launches this comparison takes."""
        tier = self.options.tier
        parity = 0 if tier is None else 2 * len(self.options.seeds) if tier == "statistical" else 3
        live = sum(arm.live_check is not None for arm in self.arms)
        return parity + live + len(self.arms) * self.options.min_pairs


def _arm_record(arm: Arm) -> ArmRecord:
    return ArmRecord(
        name=arm.name,
        command=list(arm.command),
        cwd=str(arm.cwd),
        environment=dict(arm.env),
        python_path=[str(path) for path in arm.python_path],
        fingerprint=arm.fingerprint or None,
    )
