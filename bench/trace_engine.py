"""Time the trace engine against a bare JSON parse and, where installed, HTA and TraceLens.

    python bench/trace_engine.py TRACE [--repeats 3] [--hta PYTHON] [--tracelens PYTHON]

Every tool runs in a process of its own; one round runs all of them, and the rounds alternate, so that a
busy machine hits all alike. Wall and CPU seconds and peak memory are of the whole process; `diagnosis` is
`autotune analyze --trace`: reading, every signal, rules and report; one process means one core.
Make a trace with `python bench/gen_trace.py step --out big.json`. `--hta` and `--tracelens` name the
interpreter of an environment that holds the package (`pip install traceinsight "pandas<3"`, and
TraceLens from its repository: the package of that name on PyPI is another one).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

ENGINE = """
import sys
from pathlib import Path
from autotune.trace.summary import summarize
found = summarize([Path(sys.argv[1])], tables_dir=Path(sys.argv[2])).ranks[0]
print(found.file.events, found.gpu.busy_ms if found.gpu else None, file=sys.stderr)
"""
DIAGNOSIS = """
import sys, tempfile
from autotune.cli.main import run
with tempfile.TemporaryDirectory() as runs:
    assert run(["analyze", "--trace", sys.argv[1], "--runs-dir", runs]) == 0
"""
ALONE = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
"""
ORJSON = """
import gc, gzip, os, sys, orjson
gc.disable()
raw = open(sys.argv[1], "rb").read()
if raw[:2] == b"\\x1f\\x8b":
    raw = gzip.decompress(raw)
value = orjson.loads(raw)
"""
HTA = """
import os, sys
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
found.get_temporal_breakdown(visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
found.get_idle_time_breakdown(ranks=[0], visualize=False)
found.get_comm_comp_overlap(visualize=False)
found.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
"""
TRACELENS = """
import sys, tempfile
from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch
generate_perf_report_pytorch(profile_json_path=sys.argv[1], output_csvs_dir=tempfile.mkdtemp())
"""


def measure(python: str, code: str, trace: Path) -> dict[str, Any]:
    """Run one tool once."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    tail = "\nimport sys; sys.stdout.flush(); import os; os._exit(0)\n"  # nobody waits for teardown
    started = os.times().elapsed
    child = subprocess.Popen(
        [python, "-c", code + tail, str(trace), str(ROOT / "rules" / "_tables")],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    message = child.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(child.pid, 0)
    return {
        "ok": status == 0,
        "wall_s": os.times().elapsed - started,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss * 1024 / 1e6,
        "message": message.strip().splitlines()[-1:] or [""],
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hta", help="interpreter with traceinsight")
    parser.add_argument("--tracelens", help="interpreter with TraceLens")
    given = parser.parse_args()
    tools = {
        "diagnosis, 2 processes": (sys.executable, DIAGNOSIS),
        "diagnosis, 1 process": (sys.executable, ALONE + DIAGNOSIS),
        "engine, 1 process": (sys.executable, ALONE + ENGINE),
        "orjson.loads": (sys.executable, ORJSON),
    }
    if given.hta:
        tools["HTA, five analyses"] = (given.hta, HTA)
    if given.tracelens:
        tools["TraceLens report"] = (given.tracelens, TRACELENS)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in tools}
    for _ in range(given.repeats):
        for name, (python, code) in tools.items():
            runs[name].append(measure(python, code, given.trace.resolve()))
    print(f"{given.trace.name}, {given.trace.stat().st_size:,} bytes, {given.repeats} rounds, medians")
    print(f"{'':<24}{'wall s':>9}{'CPU s':>9}{'peak MB':>10}{'wall / orjson':>15}{'CPU / orjson':>14}")
    base = {key: statistics.median(run[key] for run in runs["orjson.loads"]) for key in ("wall_s", "cpu_s")}
    for name, found in runs.items():
        if not all(run["ok"] for run in found):
            print(f"{name:<24} failed: {found[-1]['message'][0][:120]}")
            continue
        wall, cpu, peak = (
            statistics.median(run[key] for run in found) for key in ("wall_s", "cpu_s", "peak_mb")
        )
        print(
            f"{name:<24}{wall:>9.2f}{cpu:>9.2f}{peak:>10.0f}"
            f"{wall / base['wall_s']:>15.2f}{cpu / base['cpu_s']:>14.2f}"
        )
    print(json.dumps(runs), file=sys.stderr)


if __name__ == "__main__":
    main()
