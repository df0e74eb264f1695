"""Compare a small CPU job with itself, many times: how often is a difference declared that is not there?

    python bench/aa.py --runs 50 --minutes 10 --out /tmp/aa

Each comparison is a whole verification without a change: launches in alternating order, the same rule for
how many pairs, the same words. Results are appended to `results.jsonl`, and a finished comparison is not made
again, so a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from autotune.observe.launch import launch
from autotune.verify.arm import Arm, VerifyOptions
from autotune.verify.trial import run_comparison

JOB = Path(__file__).parent.parent / "tests" / "verify" / "jobs" / "tiny.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0, help="no comparison is begun after these")
    parser.add_argument("--min-pairs", type=int, default=3)
    parser.add_argument("--max-pairs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    results = flags.out / "results.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    deadline = time.monotonic() + 60 * flags.minutes
    command = (sys.executable, str(JOB), "--sleep-ms", "20")
    for number in range(len(lines) + 1, flags.runs + 1):
        if time.monotonic() > deadline:
            break
        arms = [Arm(name=name, command=command, cwd=JOB.parent, warmed=True) for name in ("job", "again")]
        options = VerifyOptions(
            tier=None,
            self_check=True,
            min_pairs=flags.min_pairs,
            max_pairs=flags.max_pairs,
            steps=flags.steps,
            warmup_steps=1,
        )
        verdict = run_comparison(arms, folder=flags.out / f"{number:03d}", options=options, launch=launch)
        row = {
            "outcome": verdict.outcome,
            "ratio": verdict.ratio,
            "interval": verdict.interval,
            "pairs": verdict.pairs,
            "launches": len(verdict.trials),
        }
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(number, json.dumps(row), flush=True)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    counts = Counter(row["outcome"] for row in rows)
    wrong = counts["faster"] + counts["slower"]
    print(json.dumps({"comparisons": len(rows), "declared": wrong, "outcomes": dict(counts)}, indent=1))


if __name__ == "__main__":
    main()
