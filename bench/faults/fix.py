"""The whole loop on the sick jobs: which share of the planted slowdown `autotune optimize` takes away."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from bench.faults.analyse import prepare
from bench.faults.cases import Case, command
from bench.faults.measure import run_once
from bench.faults.scores import SCORES, machine

PAIRS = 2


def recovered_share(slowdown: float, ratio: float) -> float | None:
    """Share of the time lost to the fault that a speed-up gives back; None where nothing was lost."""
    lost = 1 - 1 / slowdown
    return (1 - 1 / ratio) / lost if lost > 0.01 else None


def planted_slowdown(case: Case) -> float:
    """Median step of the sick job over that of the reference, run alternately now on this machine."""
    healthy, sick = [], []
    for _ in range(PAIRS):
        healthy.append(run_once(case, sick=False, steps=13)[0])
        sick.append(run_once(case, sick=True, steps=13)[0])
    return statistics.median(sick) / statistics.median(healthy)


def fix(case: Case, work: Path, steps: int, max_minutes: float) -> dict[str, object]:
    """Optimize one job. Without a kept change the ratio is 1."""
    row: dict[str, object] = {"case": case.id, "kept": [], "ratio": None, "recovered": None, "parity": "-"}
    row["slowdown"] = slowdown = planted_slowdown(case)
    job, env = prepare(case, work)
    line = [sys.executable, "-m", "autotune", "optimize", "--json", "--quiet", "--steps", str(steps)]
    line += ["--max-minutes", str(max_minutes), "--runs-dir", str(work / "runs"), "--", *command(case)]
    done = subprocess.run(line, cwd=job, env=env, capture_output=True, text=True)
    try:
        ladder = json.loads(done.stdout)
        rungs = ladder["rungs"]
    except (ValueError, KeyError):
        return {**row, "parity": "failed: " + (done.stderr.strip().splitlines() or ["no answer"])[-1][:160]}
    run = sorted((work / "runs").glob("at-*"))[-1]
    kept = rungs[1:]
    ratio = (kept[-1]["ratio_to_first"] or 1.0) if kept else 1.0
    parity = {
        json.loads((run / rung["verdict"]).read_text())["parity"]["outcome"]
        for rung in kept
        if rung["verdict"]
    }
    return {
        **row,
        "kept": [rule for rung in kept for rule in rung["rules"]],
        "dropped": [{"rules": drop["rules"], "reason": drop["reason"]} for drop in ladder["dropped"]],
        "ratio": ratio,
        "recovered": recovered_share(slowdown, ratio),
        "expected": case.fix_ratio,
        "parity": ", ".join(sorted(parity)) or "-",
        "minutes": ladder["minutes"],
    }


def fix_all(cases: list[Case], args: argparse.Namespace) -> None:
    """Optimize every job whose fault costs time, print a line each, and keep all in scores/fix.json."""
    rows = []
    for case in cases:
        if case.sick != "time":
            continue
        rows.append(fix(case, args.work.resolve() / f"fix-{case.id}", args.steps, args.max_minutes))
        row = rows[-1]
        print(json.dumps(row), file=sys.stderr, flush=True)
        document = {
            "command": "python -m bench.faults " + shlex.join(sys.argv[1:]),
            "machine": machine(),
            "jobs": rows,
        }
        SCORES.mkdir(exist_ok=True)
        (SCORES / "fix.json").write_text(json.dumps(document, indent=1) + "\n")
    shares = [row["recovered"] for row in rows]
    enough = sum(share is not None and share >= 0.9 for share in shares)  # type: ignore[operator]
    broken = [row["case"] for row in rows if "broken" in str(row["parity"])]
    if args.json:
        print(json.dumps({"jobs": rows, "recovered": enough, "broken": broken}, indent=1))
        return
    for row in rows:
        share = "-" if row["recovered"] is None else f"{100 * float(row['recovered']):.0f} %"  # type: ignore[arg-type]
        print(f"{row['case']:38} {row['slowdown']:.2f}x  recovered {share:>6}  {', '.join(row['kept'])}")  # type: ignore[arg-type]
    print(
        f"at least 90 % recovered on {enough} of {len(rows)}; kept changes with broken parity: {len(broken)}"
    )
