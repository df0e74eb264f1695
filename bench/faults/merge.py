"""Result files of processes that shared the work, put together into one."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.faults import scores
from bench.faults.analyse import Answer
from bench.faults.cases import load_cases
from bench.faults.fix import FIX, FIX_UNSAFE, load_rows, write_rows
from bench.faults.gpu import plan

_PIECES = re.compile(r", in (\d+) pieces put together \(bench/faults/CHANGES\.md\)")


def merge(args: argparse.Namespace) -> Path:
    """What was measured last of each job; the file written to counts as the first piece with --fix."""
    missing = [str(path) for path in args.merge if not path.exists()]
    if missing:
        raise SystemExit(f"no such result file: {', '.join(missing)}")
    cases = load_cases()
    order = list(dict.fromkeys(case.id for case in (*cases, *plan(cases).cases)))
    if args.fix:
        path = args.results or (FIX_UNSAFE if args.unsafe else FIX)
        pieces = [load_rows(piece) for piece in dict.fromkeys([path, *args.merge])]
        write_rows(path, newest_rows(pieces), order)
        return Path(path)
    if not (args.results or args.save):
        raise SystemExit("--merge needs --fix, or the place of the score: --save NAME or --results FILE")
    path = args.results or scores.SCORES / f"{args.save}.json"
    read = [scores.read(piece) for piece in args.merge]
    answers = newest_answers([answers for _, answers in read])
    answers.sort(key=lambda answer: order.index(answer.case) if answer.case in order else len(order))
    said = {
        name: [part for heading, _ in read if heading.get(name) for part in heading[name].split("; ")]
        for name in ("when", "machine", "command", "commit")
    }
    pieces = sum(int(found[1]) if (found := _PIECES.search(part)) else 1 for part in said["command"])
    said["command"] = [_PIECES.sub("", part) for part in said["command"]]
    together = {name: "; ".join(dict.fromkeys(parts)) for name, parts in said.items()}
    if pieces > 1:
        together["command"] += f", in {pieces} pieces put together (bench/faults/CHANGES.md)"
    not_run = {name: why for heading, _ in read for name, why in heading.get("not_run", {}).items()}
    ran = {answer.case for answer in answers}
    not_run = {name: why for name, why in not_run.items() if name not in ran}
    scores.write(path, answers, together | ({"not_run": not_run} if not_run else {}))
    return Path(path)


def newest_rows(pieces: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row of each job: that of the last piece, but never a failure in place of a result."""
    kept: dict[str, dict[str, Any]] = {}
    for row in (row for piece in pieces for row in piece):
        if not row.get("failure") or row["case"] not in kept:
            kept[row["case"]] = row
    return list(kept.values())


def newest_answers(pieces: list[list[Answer]]) -> list[Answer]:
    """The same of plain answers."""
    kept: dict[str, Answer] = {}
    for answer in (answer for piece in pieces for answer in piece):
        if answer.findings or not answer.failure or answer.case not in kept:
            kept[answer.case] = replace(answer, run="")
    return list(kept.values())
