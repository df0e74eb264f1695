"""Runs for the HTML report: everything a job's run can hold, with names that try to break out of the page."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

from recorded_runs import value

from autotune.records.findings import CodeSite, Diagnosis
from autotune.records.ladder import Dropped, Ladder, Rung
from autotune.records.observation import (
    DeviceSample,
    EnvironmentRecord,
    LoaderRecord,
    Observation,
    RankObservation,
    StepRecord,
    WindowRecord,
)
from autotune.records.run import RunRecord
from autotune.records.verdict import (
    ArmRecord,
    Contrast,
    ParityCheck,
    ParityResult,
    ParityStepResult,
    Settings,
    Verdict,
)
from autotune.report.html.diffs import file_of
from autotune.report.html.gather import Material, gather
from autotune.report.html.view import Change
from autotune.store import read_record, write_record

TRACES = Path(__file__).parent.parent / "traces"
SMALL_TRACE = TRACES / "a100_2rank_ddp_nccl_args_rank0.json.gz"
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>%{x}<b>&amp;"


def observation(*, padding: int = 40) -> Observation:
    """Steps of two ranks, example lengths, and samples of two GPUs while they ran."""
    steps = [
        StepRecord(
            index=n, end_s=100.0 + n, duration_ms=900.0 + n, tokens=100, real_tokens=100 - padding,
            loader_wait_ms=5.0, tags=["profiled"] if n > 8 else [],
        )
        for n in range(1, 11)
    ]  # fmt: skip
    windows = [
        WindowRecord(name="timing", begins_after=2, synced_s=102.0),
        WindowRecord(name="profile", begins_after=8, synced_s=108.0),
        WindowRecord(name="done", begins_after=10, synced_s=110.0),
    ]
    ranks = [
        RankObservation(
            rank=rank, world_size=2, environment=EnvironmentRecord(python="3.11", torch="2.13"),
            status="stopped", steps=steps, windows=windows,
            loaders=[LoaderRecord(example_lengths=[5, 17, 90, 256, 256])],
            trace_file="raw/trace.json.gz" if rank == 0 else None,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    samples = [
        DeviceSample(
            at_s=95.0 + n / 10, gpu=gpu, utilisation_frac=0.97, sm_clock_mhz=1900.0, sm_clock_max_mhz=1980.0,
            temperature_c=60.0 + gpu, power_w=400.0, memory_used_gib=70.0,
            throttle_reasons=["sw_power_cap"] if n % 10 == 0 else [],
        )
        for n in range(200)
        for gpu in (0, 1)
    ]  # fmt: skip
    return Observation(
        mode="profile", command=["python", "train.py"], cwd="/project", exit_code=0, wall_s=60.0, ranks=ranks,
        expected_ranks=2, device_samples=samples,
    )  # fmt: skip


def verdict() -> Verdict:
    """Two cumulative changes, both faster, with equal losses."""
    contrasts = [
        Contrast(
            reference=reference, candidate=candidate, outcome="faster", ratio=ratio,
            interval=(ratio * 0.9, ratio * 1.1), pairs=3, pair_ratios=[ratio * f for f in (0.95, 1.0, 1.05)],
            unit="useful tokens/s", sentence=f"{ratio}x as fast",
        )
        for reference, candidate, ratio in (("as it is", "a", 2.0), ("as it is", "b", 3.0), ("a", "b", 1.5))
    ]  # fmt: skip
    steps = [
        ParityStepResult(
            index=n, baseline=8 - n / 10, repeat=8 - n / 10, candidate=8 - n / 10 + 1e-7,
            difference_frac=1e-8, tolerance_frac=1e-5, equal=True,
        )
        for n in range(1, 6)
    ]  # fmt: skip
    parity = ParityResult(
        tier="numeric", used="numeric", outcome="equal", sentence="loss equal", steps=steps,
        checks=[ParityCheck(name="loss", outcome="pass", detail=HOSTILE)], largest_difference_frac=1e-8,
    )  # fmt: skip
    return Verdict(
        outcome="faster", sentence=f"3.00x as fast {HOSTILE}", ratio=3.0, interval=(2.7, 3.3), parity=parity,
        contrasts=contrasts, trials=[],
        arms=[ArmRecord(name=name, command=["x"], cwd="/", step_ms=1.0) for name in ("as it is", "a", "b")],
        settings=Settings(
            tier="numeric", min_pairs=3, max_pairs=8, steps=12, warmup_steps=3, parity_steps=10, seed=0
        ),
    )  # fmt: skip


def hostile_trace(target: Path) -> Path:
    """A recorded trace whose longest kernel has a name that tries to end the script it is written in."""
    trace = json.loads(gzip.decompress(SMALL_TRACE.read_bytes()))
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    longest = max(kernels, key=lambda event: event["dur"])["name"]
    for event in kernels:
        if event["name"] == longest:
            event["name"] = HOSTILE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return target


def full_run(from_trace: Path, folder: Path) -> Path:
    """A run in which every section has something to show."""
    from autotune.data import data_dir
    from autotune.trace.summary import summarize

    home = folder / "launches" / "observe"
    trace = hostile_trace(home / "raw" / "trace.json.gz")
    summary = summarize([trace], tables_dir=data_dir("rules") / "_tables")
    base = read_record(from_trace / "diagnosis.json", Diagnosis)
    facts = {
        **base.facts,
        "run.step_ms": value(905.0), "run.steps_timed": value(6), "launch.gpu_busy_frac": value(0.3),
        "comm.exposed_frac": value(0.1), "data.loader_wait_frac": value(0.05), "run.mfu_frac": value(0.04),
        "device.utilisation_frac": value(0.97), "memory.peak_reserved_gib": value(71.0),
        "memory.device_gib": value(139.8),
    }  # fmt: skip
    place = CodeSite(file=f"/project/{HOSTILE}.py", line=7, code=HOSTILE)
    findings = [
        f.model_copy(update={"sites": [place], "message": HOSTILE, "title": f"{f.title} {HOSTILE}"})
        for f in base.findings
    ]
    lead = findings[0].rule
    diagnosis = base.model_copy(
        update={"run": folder.name, "facts": facts, "findings": findings, "verdict": f"Slow. {HOSTILE}"}
    )
    write_record(folder / "diagnosis.json", diagnosis)
    write_record(home / "observation.json", observation())
    write_record(home / "trace_summary.json", summary)
    card = RunRecord(
        id=folder.name, kind="job", created="2026-11-29T12:00:00Z", autotune="0.1.0", state="optimized",
        command=["python", f"{HOSTILE}.py"], cwd="/project",
    )  # fmt: skip
    write_record(folder / "run.json", card)
    rungs = [
        Rung(name="as it was", ratio_to_first=1.0, step_ms=905.0, useful_tokens_per_s=100.0),
        Rung(
            name=HOSTILE, rules=[lead], ratio_to_previous=3.0, interval_to_previous=(2.7, 3.3),
            ratio_to_first=3.0, interval_to_first=(2.7, 3.3), step_ms=302.0, useful_tokens_per_s=300.0,
            parity="loss equal",
        ),
    ]  # fmt: skip
    dropped = [Dropped(group="x", rules=["data/other"], reason=HOSTILE)]
    ladder = Ladder(run=folder.name, state="finished", rungs=rungs, dropped=dropped, outcome="faster")
    write_record(folder / "ladder.json", ladder)
    write_record(folder / "trials" / "001" / "verdict.json", verdict())
    after = folder / "launches" / "look-001"
    write_record(after / "observation.json", observation(padding=0))
    write_record(after / "diagnosis.json", diagnosis)
    return folder


def full_material(run: Path) -> Material:
    """The same with a diff whose lines are hostile too."""
    material = gather(run, named="latest")
    lines = ["--- a", "+++ b", "@@ -1 +1 @@", f"-{HOSTILE}", f"+{HOSTILE} # longer {'x' * 300}", " same"]
    change = Change(files=[file_of(f"src/{HOSTILE}.py", lines)], command=[f"X={HOSTILE}"])
    rule = material.diagnosis.findings[0].rule
    return replace(material, changes={rule: change}, kept_change=change)
