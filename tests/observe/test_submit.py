"""Launches through submitit, with its executor for one machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.errors import InputError, JobFailedError
from autotune.observe.progress import Progress
from autotune.observe.spec import LaunchSpec
from autotune.observe.submit import Submitter
from autotune.verify.arm import Arm, VerifyOptions
from autotune.verify.trial import run_comparison

JOB = Path(__file__).parent.parent / "verify" / "jobs" / "tiny.py"
pytestmark = pytest.mark.job


def test_a_whole_comparison_runs_through_the_scheduler(tmp_path: Path) -> None:
    submit = Submitter("local", {"timeout_min": 5})
    seen: list[Progress] = []
    arms = [
        Arm(name=name, command=(sys.executable, str(JOB), *flags), cwd=JOB.parent, warmed=True)
        for name, flags in (("before", ("--sleep-ms", "30")), ("after", ()))
    ]
    options = VerifyOptions(tier="bitwise", parity_steps=5, max_pairs=0)
    verdict = run_comparison(
        arms, folder=tmp_path, options=options, launch=lambda spec: submit(spec, seen.append)
    )
    assert verdict.parity.outcome == "equal", verdict.parity.sentence
    assert seen and len(verdict.trials) == 2
    for trial in verdict.trials:
        assert list((tmp_path / trial.label / "submit").glob("*.pkl")), "it was not submitted"


def test_faults_come_back_as_what_they_are(tmp_path: Path) -> None:
    submit = Submitter("local", {"timeout_min": 5})
    spec = LaunchSpec(command=("no-such-program-here", "x.py"), cwd=tmp_path, folder=tmp_path / "launch")
    with pytest.raises((InputError, JobFailedError), match="no-such-program-here"):
        submit(spec)
    with pytest.raises(InputError, match="submitit"):  # an option nobody knows, or no Slurm on this machine
        Submitter("slurm", {"no_such_parameter": 1})(spec)
    with pytest.raises(InputError, match="no_such_parameter"):
        Submitter("local", {"no_such_parameter": 1})(spec)
