"""A run of the bench without repairs: each job under `autotune analyze`, kept at once, judged at the end."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from autotune.observe.cpu_load import CpuWatch
from bench.faults import report, scores
from bench.faults.analyse import LIMIT_S, Answer, Setting
from bench.faults.cases import Case, load_cases
from bench.faults.gpu import beside, cannot_run, check_kernels, gpu_count, plan
from bench.faults.turns import in_turn

GPU_LIMIT_S = 100.0


def run(cases: list[Case], args: argparse.Namespace) -> list[str]:
    """Run them, write the answers to the file of results, print the score. The jobs that gave no answer."""
    path = args.results or (scores.SCORES / f"{args.save}.json" if args.save else None)
    if args.resume and path is None:
        raise SystemExit("--resume needs the file that is gone on with: --results FILE or --save NAME")
    if path is not None and not args.resume:
        _keep_others(path, cases)
    started_s = time.monotonic()
    setting = Setting(
        steps=args.steps,
        python=args.python,
        kernels=args.kernels.resolve() if args.kernels else None,
        limit_s=args.limit or (GPU_LIMIT_S if args.gpu else LIMIT_S),
        ends_at_s=started_s + 60 * args.minutes if args.minutes else math.inf,
    )
    not_run = _not_run(cases, args, setting) if args.gpu else {}
    kept, before = _before(path) if args.resume and path is not None else ([], {})
    if path is not None:
        scores.can_be_written(path)
    answers = [answer for answer in kept if answer.case not in not_run]
    left = to_run([case for case in cases if case.id not in not_run], answers)
    commit = scores.commit()
    cpu = CpuWatch(set)  # what is not this process's children is others'
    said_now = 0
    for said in in_turn(left, args.work.resolve(), setting):
        said_now += 1
        answers = [answer for answer in answers if answer.case != said.case] + [said]
        print(f"{said_now}/{len(left)} {one_line(said)}", file=sys.stderr, flush=True)
        if path is not None:
            heading = scores.heading(args.gpu, commit, time.monotonic() - started_s)
            scores.write(path, answers, together(before, heading, not_run))
    wall_s, load = time.monotonic() - started_s, cpu.end()
    if path is not None and answers:
        heading = scores.heading(args.gpu, commit, wall_s, load.foreign_cores if load is not None else None)
        scores.write(path, answers, together(before, heading, not_run))
    if said_now < len(left):
        print(f"{len(left) - said_now} jobs are left: --resume goes on with them", file=sys.stderr)
    if path is not None:
        print(f"kept in {path}", file=sys.stderr)
    return _show(cases, answers, not_run, None if kept else wall_s, args)


def to_run(cases: list[Case], answers: list[Answer]) -> list[Case]:
    """Those without an answer, then those whose answer is a failure."""
    good = {answer.case for answer in answers if answer.findings or not answer.failure}
    tried = {answer.case for answer in answers}
    return [case for case in cases if case.id not in tried] + [
        case for case in cases if case.id in tried - good
    ]


def one_line(said: Answer) -> str:
    """What was said, for the terminal."""
    named = said.findings[0].rule if said.findings else report.failed(said) or "nothing"
    pace = f", {said.pace.ms:.1f} ms a step" if said.pace is not None else ""
    return f"{said.case}: {named} ({said.seconds:.0f} s{pace})"


def together(before: dict[str, Any], now: dict[str, Any], not_run: dict[str, str]) -> dict[str, Any]:
    """The heading of results that an earlier process began: nothing is said of the whole time then."""
    if not_run:
        now = {**now, "not_run": not_run}
    if not before:
        return now
    joined = {
        name: "; ".join(dict.fromkeys(filter(None, [*str(before.get(name) or "").split("; "), now[name]])))
        for name in ("when", "machine", "command", "commit")
    }
    return {**now, **joined, "wall_s": None, "others_cores": None}


def _before(path: Path) -> tuple[list[Answer], dict[str, Any]]:
    if not path.exists():
        return [], {}
    heading, answers = scores.read(path)
    return answers, heading


def _keep_others(path: Path, cases: list[Case]) -> None:
    """A run of a few jobs does not overwrite the answers of others."""
    asked, known = {case.id for case in cases}, {case.id for case in load_cases()}
    others = [answer.case for answer in _before(path)[0] if answer.case in known - asked]
    if others:
        raise SystemExit(
            f"{path} has the answers of {len(others)} other jobs ({others[0]}, ...), which would be lost: "
            "give another --results FILE, and put both together with --merge; or go on with --resume"
        )


def _not_run(cases: list[Case], args: argparse.Namespace, setting: Setting) -> dict[str, str]:
    gpus = 1 if args.rehearse else gpu_count()
    if not gpus:
        raise SystemExit("--gpu: nvidia-smi lists no GPU here; --rehearse runs tiny sizes on a CPU")
    if setting.kernels is not None:
        check_kernels(setting.kernels, args.python)
    told = {case.id: cannot_run(case, gpus, setting.kernels, args.python) for case in cases}
    return {name: why for name, why in told.items() if why}


def _show(
    cases: list[Case],
    answers: list[Answer],
    not_run: dict[str, str],
    wall_s: float | None,
    args: argparse.Namespace,
) -> list[str]:
    causes = scores.load_causes()
    marks, totals = scores.judge(cases, answers, causes, wall_s)
    if args.json:
        document = {"answers": [a.to_json() for a in answers], "totals": report.totals_json(totals)}
        print(json.dumps({**document, **({"not_run": not_run} if args.gpu else {})}, indent=1))
        return report.unanswered(marks)
    print(report.terminal(marks, totals))
    if args.gpu:
        rows = beside(plan(load_cases(), args.rehearse), answers, causes)
        print("\n".join(["", *report.beside_lines(rows, not_run)]))
    return report.unanswered(marks)
