"""Runs for the reports: one from a recorded trace, one shaped like a job with places in the user's code."""

from __future__ import annotations

from pathlib import Path

from autotune.cli.main import run
from autotune.records.facts import FactScalar, FactValue
from autotune.records.findings import CodeSite, Diagnosis, Finding, Gain
from autotune.records.ladder import Ladder, Rung
from autotune.records.run import RunRecord
from autotune.store import list_runs, read_record, write_record

TRACE = Path(__file__).parent.parent / "traces" / "h200_qwen35_2b4_padded_fallback_1step.json.gz"


def trace_run(runs_dir: Path) -> Path:
    """A real diagnosis of a recorded trace."""
    assert run(["analyze", "--quiet", "--runs-dir", str(runs_dir), "--trace", str(TRACE)]) == 0
    return list_runs(runs_dir)[-1]


def value(of: FactScalar, basis: str = "") -> FactValue:
    """A fact with a value."""
    return FactValue(state="value", value=of, source="probe", basis=basis)


def job_run(base: Path, folder: Path, project: Path) -> Path:
    """The trace's diagnosis as a job would give it: timed steps, a call site, a ladder."""
    folder.mkdir(parents=True)
    diagnosis = read_record(base / "diagnosis.json", Diagnosis)
    facts = {
        **diagnosis.facts,
        "run.step_ms": value(812.5, "20 steps"),
        "run.steps_timed": value(20),
        "launch.gpu_busy_frac": value(0.42),
        "device.utilisation_frac": value(0.99),
        "run.mfu_frac": value(0.061),
        "data.loader_wait_frac": value(0.05),
        "run.world_size": value(4),
        "run.projected_hours": value(26.0, "3 epochs"),
    }
    site = CodeSite(
        file=str(project / "src" / "train it.py"), line=12, column=5, end_line=12, end_column=40,
        code="model = AutoModel.from_pretrained(...)  # <tag> | pipe",
    )  # fmt: skip
    findings = [
        f.model_copy(update={"sites": [site] if n == 0 else []}) for n, f in enumerate(diagnosis.findings)
    ]
    write_record(
        folder / "diagnosis.json",
        diagnosis.model_copy(update={"run": folder.name, "facts": facts, "findings": findings}),
    )
    card = RunRecord(
        id=folder.name, kind="job", created="2026-11-29T12:00:00Z", autotune="0.1.0", state="optimized",
        command=["python", "src/train it.py"], cwd=str(project),
    )  # fmt: skip
    write_record(folder / "run.json", card)
    rungs = [
        Rung(name="as it was", ratio_to_first=1.0, projected_hours=26.0, step_ms=812.5),
        Rung(
            name="Kernels", rules=["kernels/linear-attention-fallback"], ratio_to_previous=2.0,
            interval_to_previous=(1.8, 2.2), ratio_to_first=2.0, interval_to_first=(1.8, 2.2),
            projected_hours=13.0, step_ms=406.0, parity="loss equal",
        ),
    ]  # fmt: skip
    write_record(
        folder / "ladder.json", Ladder(run=folder.name, state="finished", rungs=rungs, outcome="faster")
    )
    return folder


def finding(title: str, message: str = "A message.", ratio: float | None = None) -> Finding:
    """A finding with foreign text in it."""
    return Finding(
        rule="data/planted", title=title, severity="high", confidence="high", message=message, evidence=[],
        gain=Gain(ratio_upper=ratio),
    )  # fmt: skip
