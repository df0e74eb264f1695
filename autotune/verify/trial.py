"""Runs the launches of a comparison and writes its verdict.

Order: parity in processes of its own (the baseline again where its noise matters), a proof that the change is
in effect, then timing in complete blocks, AB BA AB. Cheap refusals come first. Everything finished is kept on
disk, so a comparison that was killed goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune import store
from autotune.records.verdict import (
    STOPPED_AFTER,
    ArmRecord,
    ParityEvidence,
    ParityResult,
    Settings,
    Trial,
    Verdict,
)
from autotune.verify import stats
from autotune.verify.arm import Arm, Progress, ProgressCallback, VerifyOptions
from autotune.verify.evidence import parity_evidence, same_training
from autotune.verify.launches import Bench, LaunchFunction, Request
from autotune.verify.logged import read_logged_losses
from autotune.verify.measure import measure
from autotune.verify.memory import longest_tokens, spends_headroom, widened_overflows
from autotune.verify.recorder import Ended, Recorder
from autotune.verify.reference import REFERENCE_STEPS, needs_reference, reference_fault
from autotune.verify.starts import parity_request, timing_request
from autotune.verify.verdict import Session, conclude, find_failure, judge_parity

VERDICT_FILE = "verdict.json"
_SPARE_BLOCKS = 2  # blocks that may be set aside and run again
_RETRIES = 2  # attempts at a launch that did not settle


def run_comparison(
    arms: Sequence[Arm],
    *,
    folder: Path,
    options: VerifyOptions,
    launch: LaunchFunction,
    progress: ProgressCallback | None = None,
    on_trial: Callable[[Trial], None] | None = None,
    reference: Arm | None = None,
) -> Verdict:
    """Compare the arms (the first is the baseline) and write `folder/verdict.json`.

    `reference`: the job whose float32 launch half precision is judged by, where that is not the first arm:
    the unchanged job of a baseline that holds proven changes. `on_trial` is told of each launch.
    Raises JobFailedError or NotObservedError when the baseline gives no training steps, FilesError when the
    folder cannot be written.
    """
    if len(arms) < 2 or len({arm.name for arm in arms}) != len(arms):
        raise ValueError("a comparison needs two or more arms with names of their own")
    folder.mkdir(parents=True, exist_ok=True)
    session = Session([_arm_record(arm) for arm in arms], _settings(options))
    recorder = Recorder(
        tuple(arms),
        Bench(folder, options, launch),
        session,
        progress or _silent,
        options.max_minutes,
        _least_launches(arms, options),
        on_trial or _ignore,
    )
    run = _Comparison(tuple(arms), options, session, recorder, reference or arms[0])
    try:
        run.parity()
        run.prove_live()
        if options.max_pairs > 0:
            run.warm()
            run.time()
            run.try_longest()
    except Ended:
        pass
    verdict = conclude(session)
    store.write_record(folder / VERDICT_FILE, verdict)
    return verdict


def _silent(state: Progress) -> None:
    pass


def _ignore(trial: Trial) -> None:
    pass


@dataclass
class _Comparison:
    """The phases of one comparison."""

    arms: tuple[Arm, ...]
    options: VerifyOptions
    session: Session
    recorder: Recorder
    reference: Arm

    def parity(self) -> None:
        """The baseline, the last arm, and what it takes to judge them; or both arms at every seed.

        A last arm that is equal without any allowance for noise needs nothing more. Else the baseline runs
        again, for its own noise. Half precision is judged beside the baseline in float32.
        """
        tier = self.options.tier
        if tier is None:
            return
        first, last = self.arms[0], self.arms[-1]
        if tier == "statistical":
            for number, drawn in enumerate(self.options.seeds, 1):
                for arm in (first, last):
                    self._parity_launch(arm, number, drawn)
        else:
            seed = self.options.seed
            deterministic = tier == "bitwise" and self._runs_deterministically()
            before = self._parity_launch(first, 1, seed, deterministic)
            after = self._parity_launch(last, 1, seed, deterministic)
            if not same_training(before, after):
                if self.options.reference and needs_reference(before):
                    self._reference_launch(before)
                # Noise only ever widens what is allowed: who passes without it needs no measure of it.
                if self._judged().outcome not in ("equal", "refused"):
                    self._parity_launch(first, 2, seed, deterministic)
        outcome = self._judged().outcome
        if outcome == "broken" and not self.options.speed_when_broken:
            raise Ended
        if outcome not in ("equal", "broken") and not self.options.speed_when_unproven:
            raise Ended

    def _judged(self) -> ParityResult:
        session = self.session
        return judge_parity(session.evidence, session.settings, session.names, session.reference_unknown)

    def _parity_launch(
        self, arm: Arm, number: int, seed: int | None, deterministic: bool = False
    ) -> ParityEvidence:
        request = parity_request(
            self.options, arm, number, seed, reference=self.reference, deterministic=deterministic
        )
        observation, trial = self.recorder.run(request)
        found = parity_evidence(
            observation,
            label=trial.label,
            arm=arm.name,
            seed=seed,
            deterministic=deterministic,
            logged=read_logged_losses(self.recorder.bench.folder / trial.label / "train.log"),
        )
        self.session.evidence.append(found)
        return found

    def _reference_launch(self, baseline: ParityEvidence) -> None:
        """The unchanged job in float32; what went wrong with it is kept, and is no fault of any arm.

        Where two steps do not fit into memory, the first gradient alone serves: it needs no optimizer states.
        """
        steps = [1] if widened_overflows(baseline, self.session.trials) else [REFERENCE_STEPS, 1]
        for wanted in steps:
            request = Request(purpose="reference", arm=self.reference, seed=self.options.seed, steps=wanted)
            observation, trial = self.recorder.run_reference(request)
            if "out of memory" not in trial.reason:
                break
        if trial.outcome != "finished":
            self.session.reference_unknown = trial.reason or trial.outcome
            return
        found = parity_evidence(
            observation,
            label=trial.label,
            arm=self.arms[0].name,
            seed=self.options.seed,
            full_precision=True,
        )
        self.session.evidence.append(found)
        self.session.reference_unknown = reference_fault(baseline, found) or None

    def _runs_deterministically(self) -> bool:
        """Whether the baseline bears torch's deterministic algorithms: some operations have none."""
        request = Request(
            purpose="parity", arm=self.arms[0], seed=self.options.seed, deterministic=True, isolation=False
        )
        _, trial = self.recorder.bench.run(request)
        if trial.outcome != "crashed":
            return True
        self.session.notes.append(f"compared without deterministic algorithms: {trial.reason}")
        return False

    def warm(self) -> None:
        """Fill the caches of each arm in a launch that is not timed, where none has done it yet."""
        for arm in self.arms:
            if not arm.warmed and not self._warmed_before(arm):
                self.recorder.run(Request(purpose="warm", arm=arm, seed=self.options.seed))

    def _warmed_before(self, arm: Arm) -> bool:
        """An earlier launch ran the same code.

        Graphs that parity compiled may be other ones than those of a timed launch. A candidate is timed all
        the same: steps that compile are left out, a launch with too few others is made again with its caches
        full, and cold caches can only make it look slower. For a baseline that would be a gift to the others.
        On a CPU without compilation there is nothing to warm.
        """
        told = [t for t in self.session.trials if t.purpose in ("parity", "live")]
        own = [t for t in told if t.arm == arm.name]
        if any(t.purpose == "live" for t in own) or (own and arm is not self.arms[0]):
            return True
        if any("compile" in step.tags for trial in own or told for step in trial.steps):
            return False
        software = self.session.arms[0].software
        return bool(own) or (bool(told) and software is not None and software.device_type == "cpu")

    def prove_live(self) -> None:
        """A fresh profile of each changed arm, where the caller can tell from it."""
        for arm in self.arms[1:]:
            if arm.live_check is None:
                continue
            observation, trial = self.recorder.run(Request(purpose="live", arm=arm, seed=self.options.seed))
            findings = arm.live_check(observation, self.recorder.bench.folder / trial.label)
            self.recorder.note_live(arm, findings.faults, findings.checked, rules=findings.rules)
            if findings.faults:
                raise Ended

    def time(self) -> None:
        """Blocks until the interval is narrow enough, or pairs or minutes run out."""
        names = self.session.names
        by_name = {arm.name: arm for arm in self.arms}
        most = self.options.max_pairs + _SPARE_BLOCKS
        for number in range(1, most + 1):
            if self._out_of_time(number):
                break
            for position, name in enumerate(stats.block_order(names, number)):
                if not self._run_timed(by_name[name], number, position):
                    break  # the block is left out
            if self._measured_enough():
                break

    def try_longest(self) -> None:
        """A change that spends memory is tried on the batch of the longest examples before it is accepted."""
        last = self.arms[-1]
        so_far = conclude(self.session)
        spends = spends_headroom(so_far.arms[0], so_far.arms[-1])
        if so_far.outcome not in ("faster", "out-of-memory-risk") or not spends:
            return
        request = Request(purpose="longest", arm=last, seed=self.options.seed)
        observation, trial = self.recorder.run_reference(request)
        tokens = longest_tokens(observation)
        self.session.trials[-1] = trial.model_copy(update={"longest_tokens": tokens})
        if tokens is None:
            self.session.notes.append(
                "the longest examples could not be put first, so their memory is projected"
            )

    def _run_timed(self, arm: Arm, number: int, position: int) -> bool:
        """Whether the arm has a time in this block."""
        for attempt in range(1, _RETRIES + 1):
            request = timing_request(self.options, arm, number, position=position, attempt=attempt)
            _, trial = self.recorder.run(request, may_settle=True)
            if trial.outcome == "finished":
                return True
            if attempt == _RETRIES and trial.outcome != "no-steady-state":
                raise Ended
        return False

    def _measured_enough(self) -> bool:
        if find_failure(self.session.trials, under_way=True):
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

    def _out_of_time(self, number: int) -> bool:
        """Whether another block would overrun the minutes; said in the notes."""
        left = self.recorder.minutes_left()
        if left is None:
            return False
        timed = [t.wall_s for t in self.session.trials if t.purpose == "timing"][-len(self.arms) :]
        # Before the first block: the quickest launch so far, since others compiled for the first time.
        others = [t.wall_s for t in self.session.trials if t.purpose in ("parity", "warm", "live")]
        one_s = sum(timed) / len(timed) if timed else min(others, default=0.0)
        bench = self.recorder.bench  # what an earlier call finished of this block takes no time
        missing = sum(not bench.has(timing_request(self.options, arm, number)) for arm in self.arms)
        expected = missing * one_s / 60
        if expected <= left:
            return False
        self.session.notes.append(
            f"{STOPPED_AFTER} {number - 1} blocks: another takes about {expected:.1f} minutes and "
            f"{left:.1f} of {self.options.max_minutes:g} are left"
        )
        return True


def _settings(options: VerifyOptions) -> Settings:
    return Settings(
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


def _least_launches(arms: Sequence[Arm], options: VerifyOptions) -> int:
    tier = options.tier
    parity = 0 if tier is None else 2 * len(options.seeds) if tier == "statistical" else 2
    live = sum(arm.live_check is not None for arm in arms)
    return parity + live + len(arms) * min(options.min_pairs, options.max_pairs)


def _arm_record(arm: Arm) -> ArmRecord:
    return ArmRecord(
        name=arm.name,
        command=list(arm.command),
        cwd=str(arm.cwd),
        environment=dict(arm.env),
        python_path=[str(path) for path in arm.python_path],
        fingerprint=arm.fingerprint or None,
    )
