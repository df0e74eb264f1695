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
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autotune.errors import InputError
from autotune.sole_user import sole_user
from bench.faults.cases import Case, load_cases
from bench.faults.gpu import plan


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", action="append", metavar="GLOB", help="these jobs only (repeatable, commas)"
    )
    parser.add_argument("--skip", action="append", metavar="GLOB", help="not these jobs (likewise)")
    parser.add_argument("--gpu", action="store_true", help="also the faults that only a GPU shows")
    parser.add_argument("--gpu-only", action="store_true", help="with --gpu: nothing that a CPU can show")
    parser.add_argument("--kernels", type=Path, metavar="FOLDER", help="packages with the fused kernels")
    parser.add_argument("--rehearse", action="store_true", help="with --gpu: tiny sizes, on a CPU")
    parser.add_argument("--limit", type=float, metavar="S", help="of one job (default 300, with --gpu 100)")
    parser.add_argument("--fix", action="store_true", help="run `autotune optimize` on the sick jobs")
    parser.add_argument("--steps", type=int, default=8, help="timed steps of each job (default 8)")
    parser.add_argument("--max-minutes", type=float, default=5.0, help="of one job with --fix (default 5)")
    parser.add_argument("--max-pairs", type=int, default=6, help="of runs, with --fix (default 6)")
    parser.add_argument("--turns", type=int, default=2, help="with --fix: plain starts of each (default 2)")
    parser.add_argument("--resume", action="store_true", help="leave out what is already there")
    parser.add_argument("--unsafe", action="store_true", help="with --fix: also changes for review")
    parser.add_argument("--minutes", type=float, help="start nothing later; a plain run ends then")
    parser.add_argument("--work", type=Path, default=Path("runs/faults"), help="folder of jobs and runs")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the jobs")
    parser.add_argument("--results", type=Path, metavar="FILE", help="where results go, not scores/")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="put result files together")
    parser.add_argument("--save", metavar="NAME", help="keep the score as scores/NAME.json")
    parser.add_argument("--write-docs", action="store_true", help="only write docs/diagnosis.md")
    parser.add_argument("--list", action="store_true", help="only list the jobs")
    parser.add_argument("--json", action="store_true", help="answers, marks and totals as JSON")
    args = parser.parse_args()
    if (args.gpu_only or args.rehearse or args.kernels) and not args.gpu:
        parser.error("--gpu-only, --rehearse and --kernels go with --gpu")
    found = shutil.which(args.python)
    if found is None:
        parser.error(f"--python: there is no {args.python} that can be started")
    args.python = os.path.abspath(found)  # jobs start in folders of their own; a link of a venv stays one
    return args


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
    return [case for case in known if case.id in wanted and not _matches(case.id, skip)]


def _matches(name: str, globs: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, glob) for glob in globs)


def _globs(given: list[str] | None) -> list[str]:
    return [glob for text in given or [] for glob in text.split(",") if glob]


def main() -> None:
    args = options()
    if args.write_docs:
        from bench.faults.docs import write_docs

        print(write_docs())
        return
    if args.merge:
        from bench.faults.merge import merge

        print(merge(args))
        return
    cases = chosen(args)
    if args.fix:  # a repair is judged by the time it gives back
        cases = [case for case in cases if case.sick == "time" and not case.healthy]
    if args.list:
        for case in cases:
            print(f"{case.id:38} {case.needs}  {case.family:12} {case.title}")
        return
    try:
        with alone(args.work):
            _work(cases, args)
    except KeyboardInterrupt:
        print("interrupted; --resume goes on with what is in the file of results", file=sys.stderr)
        raise SystemExit(130) from None


def _work(cases: list[Case], args: argparse.Namespace) -> None:
    if args.fix:
        from bench.faults.fix import fix_all

        fix_all(cases, args)
        return
    from bench.faults.plain import run

    run(cases, args)


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
    main()
