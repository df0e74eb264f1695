"""Writes the table of launchers and training styles in docs/compatibility.md from the tests that start them.

    python bench/compatibility.py [--xml FILE ...]

runs the tests that carry such a row and replaces the table; with --xml it takes the JUnit files of runs that
were made before (of other interpreters, say), later files first. A row says what the test checked, or why it
could not run here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
TESTS = ("tests/probe/test_probe_styles.py", "tests/probe/test_probe_interpreters.py",
         "tests/observe/test_launchers.py", "tests/probe/test_probe_boot.py")  # fmt: skip
BEGIN, END = "<!-- launchers: made by bench/compatibility.py -->", "<!-- end of launchers -->"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--xml", nargs="*", type=Path, default=[])
    files = list(parser.parse_args().xml)
    if not files:
        files = [Path(tempfile.mkdtemp()) / "tests.xml"]
        command = [sys.executable, "-m", "pytest", *TESTS, f"--junitxml={files[0]}"]
        subprocess.run(command, cwd=ROOT, check=False)
    rows: dict[tuple[str, str], str] = {}
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):
            found = {p.get("name"): p.get("value", "") for p in case.iter("property")}
            if "start" in found and "style" in found:
                key = (found["start"], found["style"])
                outcome = _outcome(case, found.get("result", ""))
                if key not in rows or rows[key].startswith("not run"):
                    rows[key] = outcome
    lines = ["| started by | training | result |", "|---|---|---|"]
    lines += [f"| {start} | {style} | {result} |" for (start, style), result in rows.items()]
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{tail}", encoding="utf-8")
    print(f"{len(rows)} rows in {PAGE}")
    return 0


def _outcome(case: ElementTree.Element, result: str) -> str:
    skipped = case.find("skipped")
    if skipped is not None:
        return f"not run: {skipped.get('message', '')}"
    failed = case.find("failure") if case.find("failure") is not None else case.find("error")
    if failed is not None:
        return f"FAILED: {failed.get('message', '').splitlines()[0][:100]}"
    return result


if __name__ == "__main__":
    sys.exit(main())
