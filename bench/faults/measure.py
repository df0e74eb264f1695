"""How much each planted fault costs: the sick job and its reference, run plainly one after the other.

    python -m bench.faults.measure [ID ...] [--steps 11]

Writes measured.yaml: slowdown of a step, and of the peak memory of the largest process.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from bench.faults.cases import HERE, Case, command, lay_out, load_cases

MEASURED = HERE / "measured.yaml"


def run_once(case: Case, *, sick: bool, steps: int, python: str = sys.executable) -> tuple[float, float]:
    """Milliseconds of a step, as the job prints them, and MiB of the largest process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(case, folder, sick=sick)
        line = command(case, python, steps)
        return time_command(case.id, line, folder, case.env if sick else {}, folder / "inductor")


def time_command(
    name: str,
    line: list[str],
    cwd: Path,
    changes: Mapping[str, str | None],
    inductor: Path,
    python_path: Sequence[str] = (),
) -> tuple[float, float]:
    """The same of any command that starts a job of the bench; `changes` sets variables, or unsets (None)."""
    env: dict[str, str | None] = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(inductor), **changes}
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        watched = [sys.executable, str(Path(__file__)), "--watch", str(peak), *line]
        given = env.get("PYTHONPATH")
        env["PYTHONPATH"] = os.pathsep.join([*python_path, str(HERE.parents[1]), *([given] if given else [])])
        done = subprocess.run(
            watched,
            cwd=cwd,
            env={key: value for key, value in env.items() if value is not None},
            capture_output=True,
            text=True,
            timeout=150,
        )
        found = re.findall(r"([\d.]+) ms/step", done.stdout)
        if done.returncode or not found:
            raise RuntimeError(f"{name}: rc {done.returncode}\n{done.stderr[-3000:]}")
        return float(found[-1]), float(peak.read_text()) / 1024


def watch(peak: str, shell: list[str]) -> int:
    """Run a command and note the peak of its largest process, in KiB."""
    done = subprocess.run(shell)
    Path(peak).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
    return done.returncode


def main() -> None:
    if sys.argv[1:2] == ["--watch"]:
        raise SystemExit(watch(sys.argv[2], sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--steps", type=int, default=11)
    args = parser.parse_args()
    table = yaml.safe_load(MEASURED.read_text()) if MEASURED.exists() else {}
    for case in load_cases():
        if case.healthy or case.needs == "gpu" or (args.ids and case.id not in args.ids):
            continue
        try:
            healthy, sick = [], []
            for _ in range(3):
                healthy.append(run_once(case, sick=False, steps=args.steps))
                sick.append(run_once(case, sick=True, steps=args.steps))
                ratio = statistics.median(s[0] for s in sick) / statistics.median(h[0] for h in healthy)
                if ratio > 1.12 or case.sick != "time":
                    break
        except (RuntimeError, subprocess.TimeoutExpired) as fault:
            print(fault, file=sys.stderr)
            continue
        table[case.id] = {
            "slowdown": round(ratio, 2),
            "healthy_ms": round(statistics.median(h[0] for h in healthy), 1),
            "sick_ms": round(statistics.median(s[0] for s in sick), 1),
            "memory_ratio": round(max(s[1] for s in sick) / max(h[1] for h in healthy), 2),
            "pairs": len(sick),
            "steps": args.steps,
        }
        print(case.id, table[case.id], flush=True)
        MEASURED.write_text(yaml.safe_dump(table, sort_keys=True))


if __name__ == "__main__":
    main()
