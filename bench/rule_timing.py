"""How long 200 rules take to load, lint and match: copies of the built-in ones, in a process of its own.

python bench/rule_timing.py --rules 200 --repeats 7
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.data import data_dir
from autotune.facts.catalogue import catalogue
from autotune.facts.sheet import SheetBuilder
from autotune.rules.lint import lint
from autotune.rules.load import load_rules
from autotune.rules.match import match

_ORDER = ("after:", "together_with:", "excludes:", "explained_by:")  # names of rules that a copy has not


def copies(folder: Path, wanted: int) -> None:
    """`wanted` rule files with ids of their own."""
    originals = sorted(p for p in data_dir("rules").glob("*/*.yaml") if not p.parent.name.startswith("_"))
    for number in range(wanted):
        original = originals[number % len(originals)]
        name = f"{original.parent.name}/{original.stem}"
        path = folder / f"copy{number}" / original.name
        path.parent.mkdir(parents=True)
        text = original.read_text().replace(f"id: {name}", f"id: copy{number}/{original.stem}")
        path.write_text("\n".join(_without_order(text.split("\n"))))


def _without_order(lines: list[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        inside = line.startswith(_ORDER) or (inside and line.startswith((" ", "-")))
        if not inside:
            yield line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    known = catalogue()
    sheet = SheetBuilder()
    sheet.put("run.has_gpu", True, "bench")
    sheet.put("data.padding_frac", 0.4, "bench")
    facts = sheet.sheet()
    with tempfile.TemporaryDirectory() as folder:
        copies(Path(folder), args.rules)
        taken: dict[str, list[float]] = {"load": [], "load and lint": [], "match": []}
        for _ in range(args.repeats):
            start = time.process_time()
            loaded = load_rules([Path(folder)], catalogue=known).rules
            middle = time.process_time()
            match(loaded, facts, catalogue=known)
            end = time.process_time()
            lint([Path(folder)], catalogue=known)
            taken["load"].append(middle - start)
            taken["match"].append(end - middle)
            taken["load and lint"].append(time.process_time() - end)
    print(f"{len(loaded)} rules, seconds of CPU over {args.repeats} rounds: smallest, median")
    for what, values in taken.items():
        print(f"{what:<16}{min(values):7.3f}{statistics.median(values):7.3f}")
    both = [a + b for a, b in zip(taken["load and lint"], taken["match"], strict=True)]
    print(f"{'all three':<16}{min(both):7.3f}{statistics.median(both):7.3f}")


if __name__ == "__main__":
    main()
