"""The whole loop on the sick jobs: which share of the planted slowdown `autotune optimize` takes away.

A job that was made faster is timed without autotune: the reference, the sick job and the patched copy take
turns, so that all three see the same machine. Each gives a share: (sick - patched) / (sick - reference).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

from bench.faults.analyse import prepare
from bench.faults.cases import Case, command, load_cases
from bench.faults.measure import MEASURED, run_once, time_command
from bench.faults.score import NOTHING
from bench.faults.scores import SCORES, can_be_written, command_line, document_of, machine, write_json

FIX = SCORES / "fix.json"
FIX_UNSAFE = SCORES / "fix-unsafe.json"  # with changes that a person should review
ENOUGH = 0.9
SHORT_MS = 4000.0  # of timed steps in one start, where steps are short enough
SPARE_S = 300  # for what --max-minutes does not count: the first look, and the end of a start


@dataclass(frozen=True)
class Turn:
    """Milliseconds of a step, one start each, right after each other."""

    reference: float
    sick: float
    patched: float

    @property
    def share(self) -> float | None:
        """Share of the planted slowdown that is gone; None where this turn shows no slowdown."""
        lost = self.sick - self.reference
        return (self.sick - self.patched) / lost if lost > (NOTHING - 1) * self.reference else None


def summary(turns: list[Turn]) -> dict[str, Any]:
    """Of the fastest start of each job, for other work on the machine only slows one down; and the smallest
    and largest value over the turns."""
    best = Turn(
        min(turn.reference for turn in turns),
        min(turn.sick for turn in turns),
        min(turn.patched for turn in turns),
    )
    gain = [turn.sick / turn.patched for turn in turns]
    known = [turn.share for turn in turns if turn.share is not None]
    return {
        "slowdown": round(best.sick / best.reference, 3),
        "ratio": round(best.sick / best.patched, 3),
        "ratio_range": [round(min(gain), 3), round(max(gain), 3)],
        "recovered": None if best.share is None else round(best.share, 3),
        "recovered_range": [round(min(known), 3), round(max(known), 3)] if known else None,
        "turns_ms": [[turn.reference, turn.sick, turn.patched] for turn in turns],
    }


def steps_of(case: Case) -> int:
    """Steps of one plain start: more where they are short, for the first three are not timed."""
    table = yaml.safe_load(MEASURED.read_text()) if MEASURED.exists() else {}
    sick_ms = table.get(case.id, {}).get("sick_ms", 400.0)
    return 3 + max(8, min(60, round(SHORT_MS / sick_ms)))


def fix(case: Case, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Optimize one job, then time what was kept. Without a kept change nothing is recovered."""
    started = time.monotonic()
    row: dict[str, Any] = {
        "case": case.id,
        "when": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "expected": list(case.fix_ratio) if case.fix_ratio else None,
        "kept": [],
        "parity": "-",
        "recovered": 0.0,
    }
    job, env = prepare(case, work)
    line = [sys.executable, "-m", "autotune", "optimize", "--json", "--quiet", "--steps", str(args.steps)]
    line += ["--min-pairs", "2", "--max-pairs", str(args.max_pairs), "--parity-steps", "6"]
    line += ["--unsafe"] * args.unsafe
    line += [
        "--max-minutes",
        str(args.max_minutes),
        "--runs-dir",
        str(work / "runs"),
        "--",
        *command(case, args.python),
    ]
    limit_s = round(60 * args.max_minutes) + SPARE_S
    try:
        done = subprocess.run(line, cwd=job, env=env, capture_output=True, text=True, timeout=limit_s)
        ladder = json.loads(done.stdout)
        rungs = ladder["rungs"]
    except subprocess.TimeoutExpired:
        return {**row, "failure": f"no answer within {limit_s} s"}
    except (ValueError, KeyError):
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return {**row, "failure": _without_paths(said, job)[:300]}
    run = sorted((work / "runs").glob("at-*"))[-1]
    kept = rungs[1:]
    row["kept"] = [rule for rung in kept for rule in rung["rules"]]
    row["dropped"] = [
        {"rules": drop["rules"], "reason": _without_paths(drop["reason"], job)} for drop in ladder["dropped"]
    ]
    row["why"] = _without_paths(_why_nothing(run, ladder), job) if not kept else ""
    row["parity"] = ", ".join(sorted(_parity(run, kept))) or "-"
    if kept:
        row["verify_ratio"] = kept[-1]["ratio_to_first"]
        row["verify_interval"] = kept[-1].get("interval_to_first") or kept[-1].get("interval_to_previous")
        row |= summary(_turns(case, run, args.turns, args.python))
    else:
        row["slowdown"] = _planted(case, args.turns, args.python)
    row["seconds"] = round(time.monotonic() - started)
    return row


def _without_paths(text: str, job: Path) -> str:
    """The text as it reads on any machine."""
    return text.replace(f"{job}/", "").replace(f"{job.parent}/", "").replace(f"{sys.prefix}/", "")


def _parity(run: Path, kept: list[dict[str, Any]]) -> set[str]:
    """What the verdicts of the kept changes say of training."""
    paths = {rung["verdict"] for rung in kept if rung["verdict"]}
    return {json.loads((run / path).read_text())["parity"]["outcome"] for path in paths}


def _why_nothing(run: Path, ladder: dict[str, Any]) -> str:
    """Why no change was kept, in the words of the run itself."""
    if ladder["dropped"]:
        return "; ".join(f"{', '.join(drop['rules'])}: {drop['reason']}" for drop in ladder["dropped"])
    plan = json.loads((run / "plan.json").read_text()) if (run / "plan.json").exists() else {}
    first = next((f["rule"] for f in json.loads((run / "diagnosis.json").read_text())["findings"]), None)
    for advice in plan.get("advice", []):
        if advice["rule"] == first:
            return f"{first}: {' | '.join(advice['reasons'])}"
    return f"{first}: {ladder['stop_reason']}" if first else "nothing was found"


def _turns(case: Case, run: Path, count: int, python: str) -> list[Turn]:
    """Reference, sick and patched job in turn, each started plainly."""
    steps = steps_of(case)
    patched = json.loads((run / "patched_job.json").read_text())
    line = list(patched["command"])
    line[line.index("--steps") + 1] = str(steps)
    out = []
    for _ in range(count):
        reference = run_once(case, sick=False, steps=steps, python=python)[0]
        sick = run_once(case, sick=True, steps=steps, python=python)[0]
        env = {**case.env, **patched["env"]}
        changed = time_command(
            case.id, line, Path(patched["cwd"]), env, run.parent.parent / "inductor", patched["python_path"]
        )
        out.append(Turn(reference, sick, changed[0]))
    return out


def _planted(case: Case, count: int, python: str) -> float:
    """What the fault costs here and now, for a job that was left as it was; of the fastest start of each."""
    steps = steps_of(case)
    reference, sick = [], []
    for _ in range(count):
        reference.append(run_once(case, sick=False, steps=steps, python=python)[0])
        sick.append(run_once(case, sick=True, steps=steps, python=python)[0])
    return round(min(sick) / min(reference), 3)


def load_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of earlier pieces, each with the machine and the command that it was measured with."""
    if not path.exists():
        return []
    document = document_of(path, "jobs")
    try:
        basis = {"machine": document["machine"], "command": document["command"]}
        return [{**basis, **row, "case": row["case"]} for row in document["jobs"]]
    except (KeyError, TypeError) as fault:
        raise SystemExit(f"{path}: a row is not whole ({type(fault).__name__}: {fault})") from fault


def write_rows(path: Path, rows: list[dict[str, Any]], order: list[str]) -> None:
    """Keep the rows in the order of the cases; the heading says with what they were measured."""
    known = {name: place for place, name in enumerate(order)}
    rows = sorted(rows, key=lambda row: known.get(row["case"], len(order)))
    heading = {
        name: "; ".join(dict.fromkeys(str(row[name]) for row in rows)) for name in ("command", "machine")
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**heading, "jobs": rows})


def _is_single(row: dict[str, Any]) -> bool:
    return not row["case"].startswith(("pair-", "triple-"))


def costs_nothing(row: dict[str, Any]) -> bool:
    """The fault was seen to cost nothing where it was to be repaired, so there is nothing to recover."""
    return not row["kept"] and not row.get("failure") and row.get("slowdown", NOTHING) < NOTHING


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many faults lost at least 90 % of their slowdown, and which kept changes broke training."""
    idle = [row["case"] for row in rows if costs_nothing(row)]
    good = [row for row in rows if row["recovered"] is not None and row["recovered"] >= ENOUGH]
    return {
        "faults": len(rows),
        "recovered": len(good),
        "single": sum(_is_single(row) for row in rows),
        "single_recovered": sum(_is_single(row) for row in good),
        "kept": sum(bool(row["kept"]) for row in rows),
        "broken": [row["case"] for row in rows if "broken" in row["parity"]],
        "failed": [row["case"] for row in rows if row.get("failure")],
        "cost_nothing": idle,
    }


def fix_all(cases: list[Case], args: argparse.Namespace) -> list[str]:
    """Optimize every job whose fault costs time; the result file grows with each. The jobs that failed.

    With --resume what stands there is left as it is, and --minutes ends a piece in good time.
    """
    started = time.monotonic()
    path = args.results or (FIX_UNSAFE if args.unsafe else FIX)
    rows = load_rows(path)
    can_be_written(path)
    done = {row["case"] for row in rows if args.resume and not row.get("failure")}
    wanted = [case for case in cases if case.id not in done]
    order = [case.id for case in load_cases()]
    basis = {"machine": machine(args.gpu), "command": command_line()}
    for number, case in enumerate(wanted, 1):
        if args.minutes and time.monotonic() - started > 60 * args.minutes:
            print(f"{len(wanted) - number + 1} jobs are left: the same command goes on", file=sys.stderr)
            break
        try:
            row = fix(case, args.work.resolve() / f"fix-{case.id}", args)
        except (RuntimeError, subprocess.TimeoutExpired) as fault:
            row = {"case": case.id, "kept": [], "parity": "-", "recovered": None, "failure": str(fault)[:300]}
        rows = [other for other in rows if other["case"] != case.id] + [row | basis]
        write_rows(path, rows, order)
        print(f"{number}/{len(wanted)} {one_line(row)}", file=sys.stderr, flush=True)
    print(f"kept in {path}", file=sys.stderr)
    asked = {case.id for case in cases}
    rows = [row for row in rows if row["case"] in asked]  # the file may hold others
    sums = totals(rows)
    failed: list[str] = sums["failed"]
    if args.json:
        print(json.dumps({"jobs": rows, "totals": sums}, indent=1))
        return failed
    print("\n".join(one_line(row) for row in rows))
    print(
        f"at least {100 * ENOUGH:.0f} % recovered on {sums['recovered']} of {sums['faults']} "
        f"(single faults: {sums['single_recovered']} of {sums['single']}); "
        f"kept changes with broken parity: {len(sums['broken'])}; failed: {len(failed)}"
    )
    return failed


def one_line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    if row.get("failure"):
        return f"{row['case']:36} failed: {row['failure'].splitlines()[-1][:160]}"
    if not row["kept"]:
        return f"{row['case']:36} nothing kept: {row.get('why', '')[:90]} ({row.get('seconds', 0)} s)"
    share = "-" if row["recovered"] is None else f"{100 * row['recovered']:.0f} %"
    low_high = row["recovered_range"]
    span = "" if low_high is None else f" ({100 * low_high[0]:.0f} to {100 * low_high[1]:.0f} %)"
    return (
        f"{row['case']:36} {row['slowdown']:.2f}x, {row['ratio']:.2f}x back: {share}{span} recovered, "
        f"parity {row['parity']}, {', '.join(row['kept'])} ({row['seconds']} s)"
    )
