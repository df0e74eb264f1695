"""One launch of one arm: its folder, reuse of a finished one, and what became of it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotune import store
from autotune.errors import FilesError, InputError
from autotune.observe.outcome import failure_sentence, job_failed
from autotune.observe.spec import LaunchSpec
from autotune.records.observation import Observation
from autotune.records.verdict import Purpose, Trial, TrialOutcome
from autotune.verify.arm import Arm, VerifyOptions
from autotune.verify.figures import memory_peak, steadiness, trial_steps
from autotune.verify.guards import machine_state
from autotune.verify.premises import LEAST_PARITY_STEPS
from autotune.verify.reference import REFERENCE_STEPS

if TYPE_CHECKING:
    from autotune.records.observation import LaunchMode

LaunchFunction = Callable[[LaunchSpec], Observation]

MODULES_FILE = "module_inputs.pt"
_TAIL_LINES = 20
_OVERRUN_S = 300.0
_OVERRUN = 6.0
_MORE_TIME = 1.2
_LONGER = 2  # times the steps, in the second attempt at a timed start
_LEAST_S = 60.0  # a launch that is made at all gets this long
FEW_STEPS = 2  # whose single examples tell a change of layout


@dataclass(frozen=True, kw_only=True)
class Request:
    """A launch to be made."""

    purpose: Purpose
    arm: Arm
    number: int = 1
    block: int | None = None
    position: int | None = None
    attempt: int = 1
    seed: int | None = None
    seed_shift: int = 0
    """Added to the seeds that the job itself sets."""
    deterministic: bool = False
    isolation: bool = False
    example_steps: int = FEW_STEPS
    """Steps in which the loss of every single example is kept."""
    modules_of: Arm | None = None
    """Single modules are checked on the inputs that the parity launch of this arm captures."""
    memory_probe: tuple[int, ...] = ()
    """Purpose memory: blocks of each step that run without checkpointing."""
    longest_times: int = 8
    steps: int | None = None
    """Purpose reference: fewer steps than usual."""
    redo_crashed: bool = False
    """A crash on record is no result: the user may have mended what caused it."""

    @property
    def shared(self) -> bool:
        """What it records does not depend on what else the machine does, so other comparisons may use it."""
        return self.purpose in ("parity", "reference")


@dataclass
class Bench:
    """Makes launches under one folder."""

    folder: Path
    options: VerifyOptions
    launch: LaunchFunction
    longest_s: float | None = None
    """Wall time of the baseline's longest launch, once known."""
    reused: int = 0
    made: dict[str, str] = field(default_factory=dict)
    """Label -> when it was started, of the launches made here."""

    def run(self, request: Request, minutes_left: float | None = None) -> tuple[Observation, Trial]:
        """Make the launch, or read it back when it was finished before."""
        spec = self._spec(request, minutes_left)
        label = Path(os.path.relpath(spec.folder, self.folder)).as_posix()
        observation = _finished(spec.folder)
        if observation is not None and self._worth_redoing(observation, request, spec):
            observation = None
        started = self.made.get(label, "")
        if observation is None:
            if spec.folder.exists():
                _clear(spec.folder)
            started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            observation = self.launch(spec)
            # The launch writes it; a launch function that does not would make resuming impossible.
            if not (spec.folder / "observation.json").exists():
                store.write_record(spec.folder / "observation.json", observation)
            self.made[label] = started
        else:
            self.reused += 1
        trial = to_trial(observation, request, label, started, self._wanted(request))
        lent = not started and label not in self.made and spec.folder.parent != self.folder
        return observation, trial.model_copy(update={"reused": lent})

    def has(self, request: Request) -> bool:
        """Whether the launch is finished, so that `run` would only read it back."""
        spec = self._spec(request, None)
        observation = _finished(spec.folder)
        return observation is not None and not self._worth_redoing(observation, request, spec)

    def _worth_redoing(self, observation: Observation, request: Request, spec: LaunchSpec) -> bool:
        """An earlier launch that failed for want of time it has now, or by a fault that may be mended now."""
        outcome = to_trial(observation, request, "", "", self._wanted(request)).outcome
        if outcome == "crashed":
            return request.redo_crashed
        if outcome != "not-finished":
            return False
        limits = [spec.total_timeout_s or math.inf]
        limits += [spec.first_step_timeout_s] if not any(rank.steps for rank in observation.ranks) else []
        return min(limits) > _MORE_TIME * observation.wall_s

    def _wanted(self, request: Request) -> int:
        if request.purpose in ("reference", "longest"):
            return request.steps or REFERENCE_STEPS
        if request.memory_probe:
            return len(request.memory_probe)
        if request.purpose == "parity":
            return self.options.parity_steps
        return self.options.steps * (_LONGER if self._longer(request) else 1)

    def _longer(self, request: Request) -> bool:
        """A timed start that gave too few steps, or did not settle, gets more of them the next time."""
        return request.purpose == "timing" and request.attempt == 2

    def _timing_budget_s(self, request: Request) -> float | None:
        budget = self.options.timing_budget_s
        return budget if budget is None or not self._longer(request) else _LONGER * budget

    def may_settle(self, trial: Trial) -> bool:
        """Whether a longer start may be timed where this one was not: the job had more steps to give."""
        if trial.outcome == "too-few-steps":
            return len(trial.steps) >= self.options.steps
        return trial.outcome == "no-steady-state"

    def _spec(self, request: Request, minutes_left: float | None) -> LaunchSpec:
        spec = self._plain_spec(request, minutes_left)
        if request.modules_of is None:
            return spec
        keeper = self._plain_spec(replace(request, arm=request.modules_of, attempt=1), minutes_left)
        kept = keeper.folder / MODULES_FILE
        return replace(spec, module_inputs=kept, keep_module_inputs=spec.folder == keeper.folder)

    def _plain_spec(self, request: Request, minutes_left: float | None) -> LaunchSpec:
        arm, options = request.arm, self.options
        modes: dict[Purpose, LaunchMode] = {
            "parity": "parity",
            "reference": "parity",
            "live": "profile",
        }
        mode = modes.get(request.purpose, "timing")
        limit = options.run_timeout_s
        if limit is None and self.longest_s is not None:
            limit = _OVERRUN * self.longest_s + _OVERRUN_S
        if minutes_left is not None:
            budget = max(60 * minutes_left, _LEAST_S)
            limit = budget if limit is None else min(limit, budget)
        common = LaunchSpec(
            command=arm.command,
            cwd=arm.cwd,
            folder=self.folder,
            mode=mode,
            steps=self._wanted(request),
            warmup_steps=0 if mode == "parity" else options.warmup_steps,
            budget_s=self._timing_budget_s(request) if mode == "timing" else None,
            least_s=options.timing_least_s if request.purpose == "timing" else None,
            seed=request.seed,
            seed_shift=request.seed_shift,
            deterministic=request.deterministic,
            isolation=request.isolation,
            example_steps=request.example_steps,
            full_precision=request.purpose == "reference",
            longest_first=request.purpose in ("longest", "memory"),
            longest_times=request.longest_times,
            memory_probe=request.memory_probe,
            env=dict(arm.env),
            python_path=arm.python_path,
            protect=options.protect,
            allow_write=options.allow_write,
            protected_roots=arm.protected_roots,
            fingerprint_files=arm.fingerprint_files,
            user_roots=arm.user_roots,
            stop=options.stop,
            echo=options.echo,
            first_step_timeout_s=min(options.first_step_timeout_s, limit or options.first_step_timeout_s),
            total_timeout_s=limit,
        )
        place = f"{request.block or request.number:02d}" + (
            f"-r{request.attempt}" if request.attempt > 1 else ""
        )
        key = _key(common, arm, modules=request.modules_of is not None)
        if request.shared and options.shared_folder is not None:
            return replace(common, folder=options.shared_folder / f"{request.purpose}-{place}-{key}")
        label = f"{request.purpose}-{place}-{_slug(arm.name)}-{key}"
        return replace(common, folder=self.folder / label)


def _key(spec: LaunchSpec, arm: Arm, *, modules: bool) -> str:
    """What makes a finished launch the same as this one."""
    parts = [
        list(spec.command),
        str(spec.cwd),
        sorted((name, value) for name, value in spec.env.items()),
        [str(path) for path in spec.python_path],
        arm.fingerprint,
        spec.mode,
        spec.steps,
        spec.warmup_steps,
        spec.budget_s,
        *([spec.least_s] if spec.least_s is not None else []),
        spec.seed,
        *(["shifted", spec.seed_shift] if spec.seed_shift else []),
        spec.deterministic,
        spec.isolation,
        *(["examples", spec.example_steps] if spec.example_steps != FEW_STEPS else []),
        spec.full_precision,
        spec.longest_first,
        *((list(spec.memory_probe), spec.longest_times) if spec.memory_probe else ()),
        *(["modules"] if modules else []),
        spec.stop,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:32] or "arm"


def _finished(folder: Path) -> Observation | None:
    """The observation of a launch that ended by itself; None when it has to be made."""
    if not (folder / "observation.json").is_file():
        return None
    try:
        observation = store.read_record(folder / "observation.json", Observation)
    except InputError:
        return None  # a disk that filled up, or another version wrote it
    return None if observation.stop_reason == "interrupted" else observation


def _clear(folder: Path) -> None:
    """Take away what a killed launch left."""
    try:
        shutil.rmtree(folder)
    except OSError as fault:
        raise FilesError(fault.strerror or str(fault), where=str(folder)) from fault


def to_trial(observation: Observation, request: Request, label: str, started_at: str, wanted: int) -> Trial:
    """The record of a launch and what became of it."""
    trial = Trial(
        label=label,
        arm=request.arm.name,
        purpose=request.purpose,
        block=request.block,
        position=request.position,
        attempt=request.attempt,
        outcome="finished",
        exit_code=observation.exit_code,
        started_at=started_at,
        wall_s=round(observation.wall_s, 3),
        startup_s=max((r.startup_s for r in observation.ranks if r.startup_s is not None), default=None),
        ranks=sum(bool(rank.steps) for rank in observation.ranks),
        expected_ranks=observation.expected_ranks,
        fingerprints=[rank.patch_fingerprint for rank in observation.ranks],
        steps=trial_steps(observation),
        memory=memory_peak(observation.ranks),
        machine=machine_state(observation.device_samples, observation.cpu_load),
    )
    outcome, reason = fate(observation, trial, wanted)
    tail = observation.log_tail[-_TAIL_LINES:] if outcome in ("crashed", "not-finished") else []
    return trial.model_copy(update={"outcome": outcome, "reason": reason, "log_tail": tail})


def fate(observation: Observation, trial: Trial, wanted: int) -> tuple[TrialOutcome, str]:
    """What became of a launch, and why."""
    killed = [rank for rank in observation.ranks if rank.status == "killed"]
    enough = len(trial.steps) >= wanted
    if any(rank.memory is not None and rank.memory.out_of_memory for rank in observation.ranks):
        return "crashed", f"out of memory after {len(trial.steps)} steps"
    if observation.stop_reason and not enough:
        kind: TrialOutcome = "not-finished" if _ran_out_of_time(observation.stop_reason) else "crashed"
        return kind, observation.stop_reason
    if any(rank.status == "exception" for rank in observation.ranks) or (
        job_failed(observation) and not enough
    ):
        return "crashed", failure_sentence(observation)
    if killed and not enough and observation.stop_reason is None:
        return "crashed", f"rank {killed[0].rank} was killed after {len(killed[0].steps)} steps"
    if trial.purpose in ("parity", "reference", "live", "longest", "memory"):
        least: int = LEAST_PARITY_STEPS if trial.purpose == "parity" else 1
        short = f"the job ended after {len(trial.steps)} steps, {least} needed"
        return ("finished", "") if len(trial.steps) >= least else ("too-few-steps", short)
    if trial.purpose == "warm":
        return "finished", ""
    steady = steadiness(trial)
    if steady.start is not None:
        return "finished", ""
    kinds: dict[str, Literal["too-few-steps", "no-steady-state"]] = {
        "too-few-steps": "too-few-steps",
        "no-steady-state": "no-steady-state",
    }
    return kinds[steady.kind], steady.reason


def _ran_out_of_time(stop_reason: str) -> bool:
    return "time limit" in stop_reason or "no training step" in stop_reason
