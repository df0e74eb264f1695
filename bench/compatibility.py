"""Writes the table of launchers and training styles in docs/compatibility.md from the tests that start them.

    python bench/compatibility.py [--xml FILE ...] [--check]

runs the tests that carry such a row and replaces the table; with --xml it takes the JUnit files of runs that
were made before (of other interpreters, say), later files first. A row says what the test checked, or why it
could not run here. --check compares the table with the rows the tests name and changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
TESTS = (
    "tests/probe/test_probe_styles.py", "tests/probe/test_odd_jobs.py", "tests/observe/test_launchers.py",
    "tests/probe/test_probe_boot.py", "tests/probe/test_probe_endings.py", "tests/probe/test_probe_facts.py",
    "tests/probe/test_probe_interpreters.py",
)  # fmt: skip
BEGIN, END = "<!-- launchers: made by bench/compatibility.py -->", "<!-- end of launchers -->"
PACKAGES = ("torch", "transformers", "accelerate", "trl", "lightning", "deepspeed", "hydra-core")
BAD = ("FAILED", "not run")
Row = tuple[str, str]  # started by, training


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--xml", nargs="*", type=Path, default=[])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        faults = stale()
        print("\n".join(faults) or "the table holds a row for everything the tests start")
        return 1 if faults else 0
    files = list(arguments.xml)
    if not files:
        files = [Path(tempfile.mkdtemp()) / "tests.xml"]
        command = [sys.executable, "-m", "pytest", *TESTS, f"--junitxml={files[0]}"]
        subprocess.run(command, cwd=ROOT, check=False)
    rows = _recorded(files)
    order = {key: number for number, key in enumerate(named_rows())}
    kept = sorted(rows.items(), key=lambda item: (order.get(item[0], len(order)), item[0]))
    lines = [f"With {_versions()}.", "", "| started by | training | result |", "|---|---|---|"]
    lines += [f"| {start} | {style} | {result} |" for (start, style), result in kept]
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{tail}", encoding="utf-8")
    print(f"{len(rows)} rows in {PAGE}")
    return 0


def _recorded(files: list[Path]) -> dict[Row, str]:
    """Rows of the JUnit files; one that ran outranks one that did not."""
    rows: dict[Row, str] = {}
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):
            found = {p.get("name"): p.get("value", "") for p in case.iter("property")}
            if "start" in found and "style" in found:
                key = (found["start"], found["style"])
                if key not in rows or rows[key].startswith("not run"):
                    rows[key] = _outcome(case, found.get("result", ""))
    return rows


def _outcome(case: ElementTree.Element, result: str) -> str:
    skipped = case.find("skipped")
    if skipped is not None:
        return f"not run: {skipped.get('message', '')}"
    failed = case.find("failure") if case.find("failure") is not None else case.find("error")
    if failed is not None:
        return f"FAILED: {failed.get('message', '').splitlines()[0][:100]}"
    return result


def _versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"Python {sys.version.split()[0]}, {', '.join(found)}"


def named_rows() -> dict[Row, str]:
    """What the tests say they start, read from their source: the row, and its result where it is written out.

    Rows are tuples (training, started by, ...) in a list called STYLES, and calls `told(..., started by,
    training, result)` with plain strings.
    """
    found: dict[Row, str] = {}
    for name in TESTS:
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STYLES":
                for row in node.value.elts if isinstance(node.value, ast.List) else ():
                    style, start = (ast.literal_eval(part) for part in row.elts[:2])  # type: ignore[attr-defined]
                    found[start, style] = ""
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "told":
                words = [part.value for part in node.args[-3:] if isinstance(part, ast.Constant)]
                if len(words) == 3:
                    found[str(words[0]), str(words[1])] = str(words[2])
    return found


def written_rows() -> dict[Row, str]:
    """The rows of the page."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table = rest.partition(END)[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]
    return {(start, style): result for start, style, result in cells[2:]}


def stale() -> list[str]:
    """What is wrong with the page: rows it lacks, rows no test has, results that are none."""
    named, written = named_rows(), written_rows()
    faults = [
        f"no row for {style!r} started by {start}" for start, style in named if (start, style) not in written
    ]
    for key, result in written.items():
        own = key[0].startswith("Python ")  # other interpreters: which ones is up to who runs the tests
        if key not in named and not own:
            faults.append(f"a row for {key[1]!r} started by {key[0]}, which no test starts")
        elif not result or result.startswith(BAD) or (named.get(key) and named[key] != result):
            faults.append(f"{key[1]!r} started by {key[0]}: {result or 'no result'}")
    return faults


if __name__ == "__main__":
    sys.exit(main())
