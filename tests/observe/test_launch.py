"""Starting, watching and ending commands. Jobs here do not train, except the last few."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from autotune.errors import FilesError, JobFailedError, NotObservedError
from autotune.observe.launch import launch
from autotune.observe.outcome import require_steps
from autotune.observe.processes import end_leftovers, job_processes
from autotune.observe.progress import Progress
from autotune.observe.spec import LaunchSpec

PYTHON = sys.executable
TRAIN = """
    import os, sys, torch
    model = torch.nn.Linear(4, 4); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(int(sys.argv[1])):
        if sys.argv[2:] == ["crash"] and step == 2: raise ValueError("bad batch")
        model(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""


def spec(tmp_path: Path, *command: str, **more: object) -> LaunchSpec:
    values: dict[str, object] = {
        "folder": tmp_path / "launch", "mode": "timing", "steps": 4, "warmup_steps": 3, "echo": "none"
    }  # fmt: skip
    values.update(more)
    return LaunchSpec(command=command, cwd=tmp_path, **values)  # type: ignore[arg-type]


def script(tmp_path: Path, text: str, name: str = "job.py") -> str:
    (tmp_path / name).write_text(textwrap.dedent(text))
    return name


def test_exit_code_output_and_settings(tmp_path: Path) -> None:
    job = script(tmp_path, "import sys; print('to out'); print('to err', file=sys.stderr); sys.exit(7)")
    observation = launch(spec(tmp_path, PYTHON, job, "--x", "1"))
    assert observation.exit_code == 7 and observation.ranks == [] and observation.stop_reason is None
    assert sorted(observation.log_tail) == ["to err", "to out"]
    assert sorted((tmp_path / "launch" / "train.log").read_text().split("\n")) == ["", "to err", "to out"]
    assert (tmp_path / "launch" / "observation.json").exists()
    assert len(list((tmp_path / "launch" / "hello").iterdir())) == 1
    with pytest.raises(JobFailedError, match="exit code 7; its last line: to"):
        require_steps(observation)


@pytest.mark.parametrize(
    ("echo", "out", "err"), [("both", "to out", "to err"), ("stderr", "", "to out"), ("none", "", "")]
)
def test_where_the_output_goes(tmp_path: Path, echo: str, out: str, err: str) -> None:
    script(tmp_path, "import sys; print('to out'); print('to err', file=sys.stderr)")
    code = f"""
        from pathlib import Path
        from autotune.observe.launch import launch
        from autotune.observe.spec import LaunchSpec
        p = Path({str(tmp_path)!r})
        launch(LaunchSpec(command=({PYTHON!r}, "job.py"), cwd=p, folder=p / "launch", echo={echo!r}))
    """
    done = subprocess.run([PYTHON, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert out in done.stdout and (out or not done.stdout)
    assert err in done.stderr and (err or not done.stderr)


def test_the_environment_holds_only_the_inject_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Besides it there are only the switches that keep experiment trackers offline."""
    for name in ("PYTHONPATH", "WANDB_MODE", "WANDB_DIR", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NEPTUNE_MODE", "debug")
    job = script(
        tmp_path, "import json, os; json.dump(dict(os.environ), open('/tmp/' + os.environ['NAME'], 'w'))"
    )
    name = f"autotune-test-{os.getpid()}.json"
    try:
        launch(
            spec(tmp_path, PYTHON, job, env={"NAME": name, "HOME": None}, python_path=(tmp_path / "over",))
        )
        seen = json.loads(Path("/tmp", name).read_text())
    finally:
        Path("/tmp", name).unlink(missing_ok=True)
    own = {**os.environ, "NAME": name}
    own.pop("HOME", None)
    added = {key: value for key, value in seen.items() if own.get(key) != value}
    added.pop("LC_CTYPE", None)  # Python's own, in a C locale
    assert added.pop("PYTHONPATH") == f"{tmp_path}/launch/inject:{tmp_path}/over"
    sandbox = f"{tmp_path}/launch/sandbox"
    assert added == {
        "WANDB_MODE": "offline", "WANDB_DIR": sandbox, "MLFLOW_TRACKING_URI": f"file://{sandbox}/mlruns",
        "SWANLAB_MODE": "offline", "CLEARML_OFFLINE_MODE": "1", "COMET_START_ONLINE": "0",
    }  # fmt: skip
    assert set(own) - set(seen) <= {"PYTEST_CURRENT_TEST"}
    assert "autotune" not in "".join(key.lower() for key in added)


def test_the_users_python_path_stays_behind_ours(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.py").write_text("WHERE = 'user'\n")
    job = script(tmp_path, "import mine; print(mine.WHERE)")
    observation = launch(spec(tmp_path, PYTHON, job, env={"PYTHONPATH": str(tmp_path / "lib")}))
    assert observation.log_tail == ["user"]


def test_children_are_entered_whatever_the_job_makes_of_its_path(tmp_path: Path) -> None:
    job = script(
        tmp_path,
        """
        import multiprocessing, os, subprocess, sys
        child = [sys.executable, "-c", "import sys; print('_autotune_probe' in sys.modules, flush=True)"]
        def look(): print("_autotune_probe" in sys.modules, flush=True)
        if __name__ == "__main__":
            os.environ["PYTHONPATH"] = "/nowhere"
            print(os.environ["PYTHONPATH"], flush=True)
            subprocess.run(child, check=True)
            subprocess.run(child, check=True, env=os.environ)
            os.system(" ".join([child[0], child[1], f'"{child[2]}"']))
            del os.environ["PYTHONPATH"]
            subprocess.run(child, check=True)
            worker = multiprocessing.get_context("spawn").Process(target=look)
            worker.start(); worker.join()
            os.environ.clear()
            print(dict(os.environ), flush=True)
            os.execv(child[0], child)
        """,
    )
    observation = launch(spec(tmp_path, PYTHON, job))
    assert observation.exit_code == 0
    assert observation.log_tail == ["/nowhere", *["True"] * 5, "{}", "True"]


def test_faults_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match="there is no program 'pyhton'"):
        launch(spec(tmp_path, "pyhton", "job.py"))
    with pytest.raises(JobFailedError, match="no such script"):
        launch(spec(tmp_path, PYTHON, "job.py"))
    assert not (tmp_path / "launch").exists()
    (tmp_path / "file").write_text("")
    script(tmp_path, "")
    with pytest.raises(FilesError):
        launch(spec(tmp_path, PYTHON, "job.py", folder=tmp_path / "file" / "launch"))


def test_a_job_without_steps_is_not_observed(tmp_path: Path) -> None:
    observation = launch(spec(tmp_path, PYTHON, script(tmp_path, "print('done')")))
    with pytest.raises(NotObservedError, match="without a training step"):
        require_steps(observation)


def test_deadlines_say_what_was_missing(tmp_path: Path) -> None:
    job = script(tmp_path, "import time; time.sleep(60)")
    states: list[Progress] = []
    observation = launch(spec(tmp_path, PYTHON, job, first_step_timeout_s=2.0), progress=states.append)
    assert observation.exit_code is None
    assert "no training step ended within 2 s" in (observation.stop_reason or "")
    assert {state.phase for state in states} >= {"loading"} and any("first step" in s.message for s in states)
    with pytest.raises(NotObservedError, match="no training step ended"):
        require_steps(observation)
    observation = launch(spec(tmp_path, PYTHON, job, total_timeout_s=1.0))
    assert observation.stop_reason == "the time limit of 1 s was over"
    observation = launch(spec(tmp_path, "sleep", "60", hello_timeout_s=1.0))
    assert "took the observer" in (observation.stop_reason or "")


@pytest.mark.parametrize(
    "prefix",
    [("env", "-i", "PATH=/usr/bin:/bin"), ("env", "PYTHONPATH=/nowhere"), ()],
    ids=["env -i", "env PYTHONPATH", "python -I"],
)
def test_cleaned_environments_are_entered_all_the_same(tmp_path: Path, prefix: tuple[str, ...]) -> None:
    job = script(
        tmp_path,
        "import sys; print(sys.argv, __name__, __file__, sys.path[0], '_autotune_probe' in sys.modules)",
    )
    flags = () if prefix else ("-I",)
    observation = launch(spec(tmp_path, *prefix, PYTHON, *flags, job, "a"))
    assert observation.exit_code == 0
    line = observation.log_tail[-1]
    assert line.startswith("['job.py', 'a'] __main__") and line.endswith("True")
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "go.py").write_text("import sys; print(sys.argv[1:], __name__, __package__)\n")
    if prefix:
        observation = launch(spec(tmp_path, *prefix, PYTHON, "-m", "pkg.go", "b"))
        assert observation.log_tail == ["['b'] __main__ pkg"]
    else:
        observation = launch(spec(tmp_path, PYTHON, "-E", "-m", "pkg.go", "b"))
        assert observation.log_tail == ["['b'] __main__ pkg"]


@pytest.mark.parametrize("words", [("-I", "-c"), ("-BIc",), ("-E", "-c"), ()], ids=" ".join)
def test_code_on_the_command_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    code = "import sys; print(sys.argv, sys.path[0] == '', __name__, '__file__' in globals()); 1 / 0"
    command = (PYTHON, *words, code, "a") if words else (PYTHON, "-Ic" + code, "a")
    alone = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    observation = launch(spec(tmp_path, *command))
    assert sorted(observation.log_tail) == sorted(alone.stdout.splitlines() + alone.stderr.splitlines())
    assert len(list((tmp_path / "launch" / "hello").glob("*.json"))) == 1 and observation.exit_code == 1


def test_a_program_on_standard_input(tmp_path: Path) -> None:
    """Trials cannot have it twice; a watched run is the user's own and gets it."""
    for command in ((PYTHON, "-"), (PYTHON,), ("env", "A=1", PYTHON, "-I")):
        with pytest.raises(NotObservedError, match=r"reads the program from it.*put it into a file"):
            launch(spec(tmp_path, *command))
    watch = [PYTHON, "-m", "autotune", "watch", "--runs-dir", "out", "--", PYTHON, "-", "a"]
    program = "import sys; print(sys.argv, '_autotune_probe' in sys.modules)"
    done = subprocess.run(watch, input=program, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "['-', 'a'] True\n"


def test_nothing_is_left_running(tmp_path: Path) -> None:
    """A daemon in a session of its own, as ranks under torchrun are."""
    script(tmp_path, "import time; print('up', flush=True); time.sleep(600)", "daemon.py")
    job = script(
        tmp_path,
        """
        import subprocess, sys, time
        d = subprocess.Popen([sys.executable, "daemon.py"], start_new_session=True)
        subprocess.Popen(["sleep", "600"])
        print(d.pid, flush=True); time.sleep(1)
        """,
    )
    started = time.monotonic()
    observation = launch(spec(tmp_path, PYTHON, job, first_step_timeout_s=3.0))
    assert time.monotonic() - started < 30
    assert observation.exit_code == 0 and "2 processes of the job were left over" in observation.notes[-1]
    assert job_processes(-1, tmp_path / "launch" / "inject") == []
    daemon = Path("/proc", next(line for line in observation.log_tail if line.isdigit()), "stat")
    assert not daemon.exists() or daemon.read_text().rpartition(")")[2].split()[0] == "Z"


INTERRUPT = """
    import sys, signal
    from pathlib import Path
    from autotune.errors import InterruptedRunError
    from autotune.observe import launch as launching
    from autotune.observe.launch import launch
    from autotune.observe.spec import LaunchSpec
    p = Path(sys.argv[1])
    launching._INTERRUPT_PATIENCE_S = float(sys.argv[2])
    try:
        launch(LaunchSpec(command=(sys.executable, "job.py"), cwd=p, folder=p / "launch", echo="none"))
    except InterruptedRunError as fault:
        sys.exit(int(fault.exit_code))
"""


def _start(tmp_path: Path, patience_s: float = 8.0) -> subprocess.Popen[str]:
    words = [PYTHON, "-c", textwrap.dedent(INTERRUPT), str(tmp_path), str(patience_s)]
    process = subprocess.Popen(words, text=True)
    deadline = time.monotonic() + 30
    while "ready" not in (log.read_text() if (log := tmp_path / "launch" / "train.log").exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("presses", [1, 2, 3])
def test_ctrl_c_once_twice_three_times(tmp_path: Path, presses: int) -> None:
    """Each job ignores one more signal than the one before."""
    ignored = [
        "",
        "signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    ]
    script(
        tmp_path,
        f"""
        import signal, time
        {ignored[presses - 1]}
        print("ready", flush=True)
        try: time.sleep(60)
        except KeyboardInterrupt: print("got SIGINT", flush=True)
        """,
    )  # fmt: skip
    process = _start(tmp_path)
    for _ in range(presses):
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    assert process.wait(timeout=20) == 130
    observation = json.loads((tmp_path / "launch" / "observation.json").read_text())
    assert observation["stop_reason"] == "interrupted"
    assert ("got SIGINT" in observation["log_tail"]) == (presses == 1)
    assert job_processes(-1, tmp_path / "launch" / "inject") == []


def test_one_ctrl_c_ends_a_job_that_ignores_it_with_patience(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True); time.sleep(60)
        """,
    )
    process = _start(tmp_path, patience_s=0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert job_processes(-1, tmp_path / "launch" / "inject") == []


def test_leftovers_of_a_killed_parent_are_found(tmp_path: Path) -> None:
    script(
        tmp_path,
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)",
    )
    process = _start(tmp_path)
    process.kill()
    process.wait()
    time.sleep(0.2)
    assert end_leftovers(tmp_path / "launch") == 1
    assert end_leftovers(tmp_path / "launch") == 0


def test_a_full_disk_ends_the_job_with_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/full stands for the log's disk."""
    import autotune.observe.launch as module

    monkeypatch.setattr(module, "TRAIN_LOG", "../../../../../../../../dev/full")
    job = script(tmp_path, "import time; print('x', flush=True); time.sleep(60)")
    with pytest.raises(FilesError, match=r"No space left on device; free some space"):
        launch(spec(tmp_path, PYTHON, job))


@pytest.mark.job
def test_a_training_job_is_stopped_after_its_steps(tmp_path: Path) -> None:
    states: list[Progress] = []
    job = script(tmp_path, TRAIN)
    observation = launch(spec(tmp_path, "bash", "-c", f"{PYTHON} {job} 5000"), progress=states.append)
    assert observation.exit_code == 0
    (rank,) = observation.ranks
    assert rank.status == "stopped" and len(rank.steps) == 7
    require_steps(observation, 7)
    assert states[-1].phase in ("stopping", "timing")


@pytest.mark.job
def test_a_stuck_job_is_ended_and_what_it_did_is_kept(tmp_path: Path) -> None:
    text = TRAIN.replace(
        "if sys.argv[2:]", "if step == 3: import time; time.sleep(600)\n        if sys.argv[2:]"
    )
    observation = launch(spec(tmp_path, PYTHON, script(tmp_path, text), "50", stall_timeout_s=3.0))
    assert "nothing happened for 3 s" in (observation.stop_reason or "")
    assert observation.exit_code is None and len(observation.ranks[0].steps) == 3


@pytest.mark.job
def test_a_job_that_crashes_at_step_two_keeps_what_was_recorded(tmp_path: Path) -> None:
    observation = launch(spec(tmp_path, PYTHON, script(tmp_path, TRAIN), "50", "crash"))
    assert observation.exit_code == 1
    (rank,) = observation.ranks
    assert rank.status == "exception" and rank.error == "ValueError: bad batch" and len(rank.steps) == 2
    require_steps(observation, 2)
    with pytest.raises(JobFailedError, match="on rank 0 after 2 steps: ValueError: bad batch"):
        require_steps(observation, 5)


@pytest.mark.job
def test_a_job_in_the_background_is_waited_for(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    (tmp_path / "run.sh").write_text(f"nohup {PYTHON} job.py 5000 > /dev/null 2>&1 &\nsleep 1\n")
    observation = launch(spec(tmp_path, "bash", "run.sh"))
    assert observation.exit_code == 0 and len(observation.ranks[0].steps) == 7
