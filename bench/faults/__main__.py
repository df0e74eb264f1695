"""The fault bench: does autotune name what was planted, and is it silent on healthy jobs?

python -m bench.faults                      the jobs that a CPU can show
python -m bench.faults --gpu                all of them, on a GPU; healthy twins, too
python -m bench.faults --gpu --gpu-only --kernels FOLDER --minutes 8 --resume --results gpu.json
                                            a visit to a GPU: only what needs one, the most telling jobs first
python -m bench.faults --gpu --gpu-only --rehearse    the same at tiny sizes on a CPU
python -m bench.faults --only 'healthy-*'   some of them
python -m bench.faults --fix                the whole loop, and the share of the slowdown recovered
python -m bench.faults --fix --resume --minutes 8     the next piece of it
python -m bench.faults --write-docs         docs/diagnosis.md from the first and the latest score

Several processes share the work when each has jobs, a folder and a result file of its own:

taskset -c 0,1 python -m bench.faults --fix --only 'gc-*,detect-anomaly' --work runs/a --results a.json
taskset -c 2,3 python -m bench.faults --fix --only 'trainer-*' --work runs/b --results b.json
python -m bench.faults --fix --merge a.json b.json      into scores/fix.json
python -m bench.faults --merge c.json d.json --save latest      answers of plain runs

The exit code is 1 when a job gave no answer.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autotune.errors import InputError
from autotune.sole_user import sole_user
from bench.faults.cases import Case, load_cases
from bench.faults.gpu import plan
from bench.faults.options import options


def chosen(args: argparse.Namespace) -> list[Case]:
    """The jobs asked for; on a GPU with their twins. A name that matches nothing is an error."""
    cases = load_cases()
    visit = plan(cases, args.rehearse)
    known = [] if args.gpu_only else [case for case in cases if case.needs == "cpu"]
    if args.gpu:
        known += visit.cases
    only, skip = _globs(args.only), _globs(args.skip)
    for glob in (*only, *skip):
        if not fnmatch.filter([case.id for case in known], glob):
            raise SystemExit(f"no job is called {glob}; --list shows them (--gpu: all)")
    wanted = {case.id for case in known if not only or _matches(case.id, only)}
    if args.gpu:
        wanted |= {visit.twins[name] for name in wanted if name in visit.twins}
    left = [case for case in known if case.id in wanted and not _matches(case.id, skip)]
    if not left:
        raise SystemExit("no job is left: --skip leaves out all that --only names")
    return left


def to_repair(cases: list[Case]) -> list[Case]:
    """A repair is judged by the time it gives back, so faults of time are left."""
    left = [case for case in cases if case.sick == "time" and not case.healthy]
    if not left:
        raise SystemExit("--fix repairs faults of time, and these jobs have none; --fix --list shows them")
    return left


def _matches(name: str, globs: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, glob) for glob in globs)


def _globs(given: list[str] | None) -> list[str]:
    return [glob for text in given or [] for glob in text.split(",") if glob]


def main() -> int:
    """0, or 1 when a job gave no answer."""
    args = options(__doc__ or "")
    if args.write_docs:
        from bench.faults.docs import write_docs

        print(write_docs())
        return 0
    if args.merge:
        from bench.faults.merge import merge

        print(merge(args))
        return 0
    cases = to_repair(chosen(args)) if args.fix else chosen(args)
    if args.list and args.json:
        told = [{"job": x.id, "needs": x.needs, "family": x.family, "title": x.title} for x in cases]
        print(json.dumps(told, indent=1))
        return 0
    if args.list:
        for case in cases:
            print(f"{case.id:38} {case.needs}  {case.family:12} {case.title}")
        return 0
    try:
        with alone(args.work):
            return int(bool(_work(cases, args)))
    except KeyboardInterrupt:
        print("interrupted; --resume goes on with what is in the file of results", file=sys.stderr)
        return 130


def _work(cases: list[Case], args: argparse.Namespace) -> list[str]:
    """The run itself. The jobs that gave no answer."""
    if args.fix:
        from bench.faults.fix import fix_all

        return fix_all(cases, args)
    from bench.faults.plain import run

    return run(cases, args)


@contextmanager
def alone(work: Path) -> Iterator[None]:
    """Hold the folder of work: a second process would take away the jobs of the first."""
    with ExitStack() as held:
        try:
            work.mkdir(parents=True, exist_ok=True)
            held.enter_context(sole_user(work))
        except OSError as fault:
            raise SystemExit(f"{work}: {fault.strerror}") from fault
        except InputError:
            raise SystemExit(f"{work}: another process works there; --work gives this one its own") from None
        yield


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # of a list that is cut short by its reader
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)
