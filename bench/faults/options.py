"""The command line of the fault bench. What cannot work is refused before a job starts."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from bench.faults.scores import SCORES

_FIRST = ("first", "gpu-first")  # scores of jobs that autotune had not seen; they are not taken again
_FIX_ONLY = {"max_minutes": 5.0, "max_pairs": 6, "turns": 2, "unsafe": False}  # and their defaults


def options(description: str, line: list[str] | None = None) -> argparse.Namespace:
    """The options of `line`, or of this process. A line that cannot work ends the process with 2."""
    parser = _parser(description)
    args = parser.parse_args(line)
    if (args.gpu_only or args.rehearse or args.kernels) and not args.gpu:
        parser.error("--gpu-only, --rehearse and --kernels go with --gpu")
    given = [f"--{name.replace('_', '-')}" for name in _FIX_ONLY if getattr(args, name) not in (None, False)]
    if given and not args.fix:
        parser.error(f"{' and '.join(given)}: only with --fix")
    if args.fix and args.steps < 5:
        parser.error("--steps: with --fix at least 5")
    for name, default in _FIX_ONLY.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
    if args.save is not None:
        _check_name(parser, args)
    if args.results is not None and args.results.is_dir():
        parser.error(f"--results {args.results}: a folder, not a file")
    found = shutil.which(args.python)
    if found is None:
        parser.error(f"--python: there is no {args.python} that can be started")
    args.python = os.path.abspath(found)  # jobs start in folders of their own; a link of a venv stays one
    return args


def _check_name(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.fix:
        parser.error("--save keeps the score of a plain run; with --fix say --results FILE")
    if not re.fullmatch(r"[a-z0-9-]+", args.save):
        parser.error(f"--save {args.save}: small letters, digits and dashes only; --results takes a path")
    if args.save in _FIRST and (SCORES / f"{args.save}.json").exists():
        parser.error(f"--save {args.save}: a first score is taken once, and this one stands")


def _at_least(least: float, kind: Callable[[str], float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number of this kind") from None
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text}: at least {least}")
        return value

    return read


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", action="append", metavar="GLOB", help="these jobs only (repeatable, commas)")
    add("--skip", action="append", metavar="GLOB", help="not these jobs (likewise)")
    add("--gpu", action="store_true", help="also the faults that only a GPU shows")
    add("--gpu-only", action="store_true", help="with --gpu: nothing that a CPU can show")
    add("--kernels", type=Path, metavar="FOLDER", help="packages with the fused kernels")
    add("--rehearse", action="store_true", help="with --gpu: tiny sizes, on a CPU")
    add("--limit", type=_at_least(1, float), metavar="S", help="seconds for one job (300; with --gpu 100)")
    add("--fix", action="store_true", help="run `autotune optimize` on the sick jobs")
    add("--steps", type=_at_least(3, int), metavar="N", default=8, help="timed steps of each job (8)")
    minutes = _at_least(0.1, float)
    add("--max-minutes", type=minutes, metavar="M", help="with --fix: for the trials of one job (5)")
    add("--max-pairs", type=_at_least(2, int), metavar="N", help="with --fix: pairs of runs at most (6)")
    add("--turns", type=_at_least(1, int), metavar="N", help="with --fix: plain starts of each (2)")
    add("--unsafe", action="store_true", help="with --fix: also changes for review")
    add("--resume", action="store_true", help="leave out what is already there")
    add("--minutes", type=minutes, metavar="M", help="start nothing later; a plain run ends then")
    add("--work", type=Path, default=Path("runs/faults"), help="folder of jobs and runs")
    add("--python", default=sys.executable, help="interpreter of the jobs")
    add("--results", type=Path, metavar="FILE", help="where results go, not scores/")
    add("--save", metavar="NAME", help="keep the score as scores/NAME.json")
    add("--json", action="store_true", help="the answer as JSON on stdout")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="only list the jobs")
    instead.add_argument("--write-docs", action="store_true", help="only write docs/diagnosis.md")
    instead.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="put result files together")
    return parser
