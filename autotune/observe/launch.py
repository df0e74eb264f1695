"""Starts the user's command once with the probe in it, waits, and reads what was seen.

The command keeps its exit code and its output; its processes are ended with it; Ctrl-C reaches it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from autotune.errors import FilesError, InterruptedRunError, JobFailedError
from autotune.observe.attach import attachable, with_inject_folder
from autotune.observe.command import read_command
from autotune.observe.command_check import check_command
from autotune.observe.layout import SANDBOX, TRAIN_LOG, job_environment, lay_out
from autotune.observe.processes import dying_with_parent, end_job, job_processes, signal_group
from autotune.observe.progress import Progress, ProgressCallback, Watcher, rate_limited, waits_for
from autotune.observe.secrets import hide_command, reveal_command
from autotune.observe.supervisor import Supervisor
from autotune.observe.tee import Tee, last_lines
from autotune.store import write_record

if TYPE_CHECKING:
    from autotune.observe.spec import LaunchSpec
    from autotune.records.command import JobCommand
    from autotune.records.observation import DeviceSample, Observation

_POLL_S = 0.1
_INTERRUPT_PATIENCE_S = 10.0
_EXIT_SLACK_S = 30.0
_GONE_SLACK_S = 8.0  # the same, when no rank is left
_TEARDOWN_SLACK_S = (
    30.0  # the same for a launcher that cleans up behind its ranks: on a busy machine it takes long
)
_BACKGROUND_S = 300.0
_LAUNCHER_HELLO_S, _OPAQUE_HELLO_S = 60.0, 900.0


def launch(spec: LaunchSpec, progress: ProgressCallback | None = None) -> Observation:
    """Run the command under observation and write `observation.json` into its folder.

    A job that failed, or was never observed, is an Observation too; `outcome.require_steps` turns it into
    the error a user sees. Raises JobFailedError when the command cannot start, NotObservedError when
    nothing could attach to it, FilesError when the folder cannot be written, InterruptedRunError after
    Ctrl-C (the observation is written before).
    """
    from autotune.observe.cpu_load import CpuWatch
    from autotune.observe.nvml import DeviceSampler
    from autotune.observe.read import read_observation

    base = dict(os.environ)
    kept = hide_command(spec.command)
    spec = replace(spec, command=tuple(reveal_command(spec.command, base)))
    path = spec.env.get("PATH", base.get("PATH"))
    job = read_command(spec.command, spec.cwd, path)
    check_command(job, path)
    passes_input = spec.mode == "watch" and not _is_terminal()
    attachable(job, has_input=passes_input)
    inject = lay_out(spec)
    env, notes = job_environment(spec, inject, base)
    argv, assigned = with_inject_folder(job, inject, env["PYTHONPATH"])
    env.update(assigned)

    run = _Run(spec, job, inject, progress=rate_limited(progress, 1.0), passes_input=passes_input)
    sampler = DeviceSampler(env, lambda: {p.pid for p in job_processes(run.group, inject)})
    sampler.start()
    started = time.monotonic()
    load = CpuWatch(lambda: {p.pid for p in job_processes(run.group, inject)})
    try:
        run.start(argv, env)
        with run.signals():
            run.wait()
    finally:
        run.end()
        samples: list[DeviceSample] = sampler.stop()
        load.end()
    observation = read_observation(
        spec.folder,
        mode=spec.mode,
        command=kept,
        cwd=str(spec.cwd),
        exit_code=None if run.killed else run.exit_code,
        wall_s=time.monotonic() - started,
        expected_ranks=_expected_ranks(job, run.watcher),
        device_samples=samples,
        log_tail=last_lines(spec.folder / TRAIN_LOG),
        notes=[*notes, *run.notes],
        stop_reason=run.stop_reason,
        launcher=_launcher(job),
    )
    stepping_s = max((r.startup_s for r in observation.ranks if r.startup_s is not None), default=None)
    observation = observation.model_copy(update={"cpu_load": load.load(after_s=stepping_s)})
    write_record(spec.folder / "observation.json", observation)
    if not spec.keep_sandbox:
        shutil.rmtree(spec.folder / SANDBOX, ignore_errors=True)
    if run.interrupts:
        raise InterruptedRunError("interrupted", where=str(spec.folder), hint="what was recorded is kept")
    if run.tee is not None and run.tee.fault is not None:
        raise FilesError(
            run.tee.fault.strerror or str(run.tee.fault),
            where=str(spec.folder / TRAIN_LOG),
            hint="free some space, or choose another disk with --runs-dir",
        )
    return observation


def _is_terminal() -> bool:
    """Whether our standard input is one (or closed): a job in a session of its own cannot read from it."""
    try:
        os.fstat(0)
        return os.isatty(0)
    except OSError:
        return True


def _launcher(job: JobCommand) -> str | None:
    """The program that starts the ranks; None when a shell line hides it."""
    if job.launcher == "python" and "srun" in job.wrappers:
        return "srun"
    if job.launcher == "console-script" and job.launcher_path:
        return Path(job.launcher_path).name
    return None if job.launcher == "shell" else job.launcher


def _expected_ranks(job: JobCommand, watcher: Watcher) -> int:
    """World size as the ranks said it, else as the command line says, else one."""
    told = (job.processes_per_node or 1) * (job.nodes or 1)
    return watcher.world_size() or told


@dataclass
class _Run:
    """One start of the command."""

    spec: LaunchSpec
    job: JobCommand
    inject: Path
    progress: ProgressCallback
    passes_input: bool = False
    notes: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    tee: Tee | None = None
    supervisor: Supervisor | None = None
    stop_reason: str | None = None
    killed: bool = False
    interrupts: int = 0
    interrupted_at: float = 0.0
    exit_code: int | None = None
    group: int = -1
    started: float = 0.0
    stepped: bool = False  # a training step was seen
    waits_for: str = ""
    looked_at: float = 0.0
    done_at: float | None = None
    left_at: float | None = None

    def __post_init__(self) -> None:
        self.watcher = Watcher(self.spec.folder, self.spec.steps)

    def start(self, argv: list[str], env: dict[str, str]) -> None:
        """Start the command. Raises JobFailedError."""
        try:
            self.tee = Tee(self.spec.folder / TRAIN_LOG, self.spec.echo)
        except OSError as fault:
            raise FilesError(fault.strerror or str(fault), where=str(self.spec.folder)) from fault
        self.started = time.monotonic()
        try:
            self.process = subprocess.Popen(
                argv,
                cwd=self.spec.cwd,
                env=env,
                stdin=None if self.passes_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=dying_with_parent(),
            )
        except OSError as fault:
            self.tee.close()
            reason = fault.strerror or str(fault)
            raise JobFailedError(
                f"the command could not start: {reason}", where=argv[0], code="job-not-started"
            ) from fault
        self.group = self.process.pid
        try:
            self.supervisor = Supervisor(self.group, self.inject, self.spec.stop_grace_s)
        except OSError:
            self.notes.append("no supervisor could start: a killed autotune only sends SIGTERM to the job")
        assert self.process.stdout is not None and self.process.stderr is not None
        self.tee.follow(self.process.stdout, to_stderr=False)
        self.tee.follow(self.process.stderr, to_stderr=True)

    def signals(self) -> _Signals:
        """While inside: Ctrl-C and SIGTERM go to the job."""
        return _Signals(self.interrupted)

    def interrupted(self, number: int) -> None:
        """Once: SIGINT to the job's group; twice: SIGTERM; then SIGKILL to all of the job."""
        self.interrupts += 1
        self.interrupted_at = time.monotonic()
        self.stop_reason = "interrupted"
        if number != signal.SIGINT and self.interrupts == 1:
            self.interrupts = 2
        if self.interrupts == 1:
            signal_group(self.group, signal.SIGINT)
        elif self.interrupts == 2:
            signal_group(self.group, signal.SIGTERM)
        else:
            self.killed = True
            signal_group(self.group, signal.SIGKILL)
            end_job(self.group, self.inject, grace_s=0.0)

    def _press_on(self) -> None:
        """A job that does not heed a signal gets the next one after a while."""
        if not self.killed and time.monotonic() - self.interrupted_at > _INTERRUPT_PATIENCE_S:
            self.interrupted(signal.SIGINT)

    def wait(self) -> None:
        """Until the command has ended, by itself or by a deadline."""
        while not self._ended():
            if self.interrupts or self.killed:
                self._press_on()
                continue
            state = self._state()
            self.progress(state)
            self._check_deadlines(state)
        self.progress(self._state())  # a short job may have ended between two looks

    def _ended(self) -> bool:
        """Wait one poll. A command that ended well while ranks go on in the background has not ended."""
        assert self.process is not None
        try:
            self.exit_code = self.process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            return False
        if self.exit_code != 0 or self.interrupts or self.killed or not self._in_background():
            return True
        time.sleep(_POLL_S)
        return False

    def _in_background(self) -> bool:
        """The command left a training process behind, or one that may still become it."""
        if self.watcher.rank_folders():
            return self.watcher.live_rank()
        self.left_at = self.left_at or time.monotonic()
        waited = time.monotonic() - self.left_at
        return waited < min(_BACKGROUND_S, self.spec.first_step_timeout_s) and self.watcher.live_candidate()

    def _state(self) -> Progress:
        state = self.watcher.state(time.monotonic() - self.started)
        self.stepped = self.stepped or bool(state.step) or self.watcher.first_step_seen()
        if self.stepped or not state.processes:
            return state
        now = time.monotonic()
        if now - self.looked_at >= 1.0:
            self.looked_at = now
            age_s = now - (self.tee.last_output_s if self.tee else 0.0)
            self.waits_for = waits_for(job_processes(self.group, self.inject), age_s)
        return replace(state, message=self.waits_for)

    def _check_deadlines(self, state: Progress) -> None:
        spec, elapsed = self.spec, state.elapsed_s
        if spec.mode == "watch":  # somebody's real run: only a limit that was asked for ends it
            if spec.total_timeout_s is not None and elapsed > spec.total_timeout_s:
                self.stop(f"the time limit of {spec.total_timeout_s:.0f} s was over")
        elif self.tee is not None and self.tee.fault is not None:
            self.stop("the log cannot be written")
        elif not state.processes and elapsed > self._hello_timeout_s():
            self.stop(self._no_hello(elapsed))
        elif not self.stepped and self.exit_code is None and elapsed > spec.first_step_timeout_s:
            last = state.message or state.phase
            self.stop(f"no training step ended within {elapsed:.0f} s; last seen: {last}")
        elif spec.total_timeout_s is not None and elapsed > spec.total_timeout_s:
            self.stop(f"the time limit of {spec.total_timeout_s:.0f} s was over")
        elif self.stepped and spec.stop != "never" and self._silent_s() > spec.stall_timeout_s:
            at = f" after step {state.step}" if state.step else ""
            self.stop(f"nothing happened for {self._silent_s():.0f} s{at}: the job seems stuck")
        elif spec.stop != "never" and self.watcher.all_done():
            self.done_at = self.done_at or time.monotonic()
            if time.monotonic() - self.done_at > self._patience_s():
                self.notes.append("the command did not end after its ranks had stopped; it was ended")
                self.killed = True
                end_job(self.group, self.inject)

    def _patience_s(self) -> float:
        """How long a command may go on after its ranks have stopped.

        Processes of ranks may clean up. When they are gone, what is left waits for them in vain: a pool, say,
        whose task ended without a result.
        """
        here = (self.job.nodes or 1) == 1  # process ids of other nodes say nothing
        if here and self.watcher.ranks_gone():
            cleans_up = self.job.launcher in ("torchrun", "accelerate", "deepspeed", "trl")
            return _TEARDOWN_SLACK_S if cleans_up else _GONE_SLACK_S
        return self.spec.stop_grace_s + _EXIT_SLACK_S

    def _silent_s(self) -> float:
        """How long there was neither output nor a record of any rank."""
        output = self.tee.last_output_s if self.tee else 0.0
        return time.monotonic() - max(output, self.watcher.last_record_s(), self.started)

    def stop(self, reason: str) -> None:
        """End the job from outside."""
        self.stop_reason = reason
        self.killed = True
        end_job(self.group, self.inject)

    def _hello_timeout_s(self) -> float:
        if self.spec.hello_timeout_s is not None:
            return self.spec.hello_timeout_s
        opaque = self.job.launcher in ("shell", "other", "console-script") or self.job.wrappers
        return _OPAQUE_HELLO_S if opaque else _LAUNCHER_HELLO_S

    def _no_hello(self, elapsed: float) -> str:
        known = "; ".join(self.job.obstacles)
        tail = f"; likely because {known}" if known else ""
        return f"no Python process of the job took the observer within {elapsed:.0f} s{tail}"

    def end(self) -> None:
        """Nothing of the job is left running, whatever happened."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.killed = True
            end_job(self.group, self.inject)
            try:
                self.exit_code = self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.notes.append("the command could not be ended")
        left = self._left_over()
        if left:
            self.notes.append(f"{left} processes of the job were left over and ended")
        if self.supervisor is not None:
            self.supervisor.dismiss()
        if self.tee is not None:
            self.tee.close()
            if self.tee.left_out:
                self.notes.append(
                    f"{TRAIN_LOG} keeps the beginning and the end of the output;"
                    f" {self.tee.left_out / 1e6:.0f} MB between them were left out"
                )

    def _left_over(self) -> int:
        """End what the command left behind; helpers that go by themselves get a moment."""
        for _ in range(10):
            if self.killed or not job_processes(self.group, self.inject):
                break
            time.sleep(_POLL_S)
        return end_job(self.group, self.inject)


class _Signals:
    """Installs handlers for the time of a wait, in the main thread only (elsewhere Python forbids it)."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return

        def handle(number: int, frame: FrameType | None) -> None:
            self._handler(number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, handle)

    def __exit__(self, *unused: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
