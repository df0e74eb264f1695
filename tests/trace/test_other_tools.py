"""Busy, idle and compute times against HTA and TraceLens, where an environment holds them.

Name the interpreters: `HTA_PYTHON=... TRACELENS_PYTHON=... pytest tests/trace/test_other_tools.py`.
HTA is asked for unrounded times and for the last step it drops by default, so that both look at one window.
TraceLens keeps times as microseconds since the epoch in doubles, which hold them to about 0.2 us each.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from autotune.data import data_dir
from autotune.trace.classes import load_kernel_table
from autotune.trace.columns import Gpu
from autotune.trace.context import prepare
from autotune.trace.reader import read_trace

FOLDER = Path(__file__).parents[1] / "traces"
A100, B200, H100, H200, MI300X = (
    FOLDER / name
    for name in (
        "a100_2rank_ddp_nccl_args_rank0.json.gz",
        "b200_8rank_eager_rank0.json.gz",
        "h100_1gpu_qwen1.5-0.5b_infer_scrubbed.json.gz",
        "h200_qwen35_2b4_packed_varlen_1step.json.gz",
        "mi300x_8rank_resnet_actckpt_rank0.json.gz",
    )
)
# Not asked, because the tool measures something else there: HTA on the B200 trace (its busy time holds
# 72.7 us that are in no window of its length), TraceLens on the MI300X trace (it leaves out single
# operations whose launch is missing from the trace, not only those at the ends).
HTA = """
import json, os, sys
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
from hta.trace_analysis import TraceAnalysis
KEYS = ("idle_time", "compute_time", "kernel_time")
found = TraceAnalysis(
    trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]), include_last_profiler_step=True
).get_temporal_breakdown(visualize=False)
print(json.dumps({key: float(found[key + "(us)"][0]) for key in KEYS}))
"""
TRACELENS = """
import json, sys
from TraceLens import TreePerfAnalyzer
found = TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline()
print(json.dumps(dict(zip(found["type"], found["time ms"]))))
"""


def ask(variable: str, code: str, path: Path) -> dict[str, float]:
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no interpreter")
    done = subprocess.run([python, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


@dataclass(frozen=True)
class Ours:
    """This engine's figures on a window another tool chose, in ms."""

    busy: float
    compute: float


def on_windows(path: Path, span_ms: float, slack_ns: int) -> list[Ours]:
    """Recompute on the tool's window: it starts or ends with a GPU operation and is `span_ms` long.

    Tools drop GPU work whose launch the trace does not hold, so their window may begin later or end earlier.
    """
    context = prepare(read_trace(path), load_kernel_table(data_dir("rules") / "_tables"))
    gpu = context.trace.gpu
    start, end = gpu.ts, gpu.ts + gpu.dur
    length = round(span_ms * 1e6)
    first, last = int(start.min()), int(end.max())
    late = start[np.abs(start - (last - length)) <= slack_ns]
    early = end[np.abs(end - (first + length)) <= slack_ns]
    communication = context.gpu_class == context.class_names.index("communication")
    found = []
    for inside in [start >= at for at in late] + [end <= at for at in early]:
        compute = inside & (gpu.kind == Gpu.KERNEL) & ~communication
        found.append(Ours(union_ms(start[inside], end[inside]), union_ms(start[compute], end[compute])))
    assert found, f"no window of {span_ms} ms starts or ends with a GPU operation"
    return found


def union_ms(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> float:
    total = 0
    reached = -(2**62)
    for left, right in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        total += max(right, reached) - max(left, reached)
        reached = max(right, reached)
    return total / 1e6


@pytest.mark.parametrize("path", [A100, H100, H200, MI300X], ids=lambda path: path.name)
def test_hta_gives_the_same_nanoseconds(path: Path) -> None:
    theirs = ask("HTA_PYTHON", HTA, path)
    busy, compute = (theirs["kernel_time"] - theirs["idle_time"]) / 1e3, theirs["compute_time"] / 1e3
    mine = on_windows(path, theirs["kernel_time"] / 1e3, slack_ns=2)
    near = [item for item in mine if abs(item.busy - busy) < 2e-6 and abs(item.compute - compute) < 2e-6]
    assert near, (theirs, mine)


@pytest.mark.parametrize("path", [A100, B200, H100, H200], ids=lambda path: path.name)
def test_tracelens_agrees_within_its_doubles(path: Path) -> None:
    theirs = ask("TRACELENS_PYTHON", TRACELENS, path)
    mine = on_windows(path, theirs["total_time"], slack_ns=500)
    assert any(theirs["busy_time"] == pytest.approx(item.busy, abs=1e-3) for item in mine), (theirs, mine)
