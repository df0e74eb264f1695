"""Edit real training scripts and compare with what is expected; writes docs/compatibility.md.

    python bench/real_scripts.py CHECKOUTS [--write]

CHECKOUTS holds the repositories as folders <owner>+<name>, at the commits of real_scripts.yaml. Nothing of
theirs is kept here: the table names script, line, change and outcome.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from pathlib import Path
from typing import Any

import yaml

from autotune.apply.edit import Edit, edit_source
from autotune.apply.flags import set_flag
from autotune.observe.command import read_command

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "apply")]
from apply_sites import calls_named, site_of  # noqa: E402

BEGIN, END = "<!-- edits: made by bench/real_scripts.py -->", "<!-- end of edits -->"
HEADER = "| | script | line | change | outcome |\n|---|---|---|---|---|\n"
HERE = Path(__file__).resolve().parent


def try_call(text: str, entry: dict[str, Any], change: dict[str, Any]) -> tuple[str, str, int]:
    """(outcome, diff, line) of one edit."""
    calls = calls_named(text, entry["call"])
    wanted = entry["line"]
    call = next((c for c in calls if c.lineno <= wanted <= (c.end_lineno or 0)), None) if wanted else calls[0]
    if call is None:
        return f"no call of {entry['call']} on line {wanted}", "", wanted
    carried = dict.fromkeys(entry.get("carried", ()), "seen")
    detail = {"direct": False} if entry.get("library") else None
    callee = f"lib.{entry['call']}"
    site = site_of(text, call, kind=change["kind"], callee=callee, star=carried, detail=detail)
    edit = Edit("real/script", change["action"], site, change["arguments"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = edit_source(text, [edit])
    if result.refused:
        return result.refused[0].reason, "", call.lineno
    diff = "".join(difflib.unified_diff(text.splitlines(True), result.text.splitlines(True), n=0))
    return ("edited" if diff else "unchanged"), diff, call.lineno


def main(argv: list[str]) -> int:
    root = Path(argv[0])
    rows: list[str] = []
    faults = 0
    table = yaml.safe_load((HERE / "real_scripts.yaml").read_text())
    for script in table["scripts"]:
        path = root / script["repo"].replace("/", "+") / script["path"]
        text = path.read_bytes().decode("utf-8")
        for entry in script["edits"]:
            if "flag" in entry:
                command = read_command(entry["command"].split(), path.parent)
                outcome = " ".join(set_flag(command.argv, command, entry["flag"], entry["value"]))
                good = outcome == entry["expect"]
                place, what = "command", f"`{entry['flag']}`"
                shown = f"`{outcome}`"
            else:
                change = table["changes"][entry["change"]]
                outcome, diff, line = try_call(text, entry, change)
                good = entry["expect"] in outcome
                place, what = f"{line}", change["what"]
                shown = outcome if outcome in ("edited", "unchanged") else f"refused: {outcome}"
                if "--diffs" in argv:
                    print(f"--- {script['id']} {script['path']}:{line} {what}\n{diff}")
            if not good:
                faults += 1
                print(f"FAULT {script['id']} {script['path']} {entry}: {outcome}")
            rows.append(
                f"| {script['id']} | {script['repo']} `{script['path']}` | {place} | {what} | {shown} |"
            )
    print(f"{len(rows)} edits, {faults} not as expected")
    if "--write" in argv and not faults:
        page = HERE.parent / "docs" / "compatibility.md"
        head, begin, rest = page.read_text().partition(BEGIN)
        _, end, tail = rest.partition(END)
        page.write_text(head + begin + "\n" + HEADER + "\n".join(rows) + "\n" + end + tail)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
