"""Run the faulty jobs under `autotune analyze` and keep what was seen: facts, and the rules that fired.

    python bench/rule_firing/run.py OUT [--gpu | --cpu] [NAME ...]

OUT gets one JSON file per job: {"job", "findings": {rule: severity}, "facts": {name: value}}; null is a fact
that does not apply. tests/rules/recorded/ holds such files; a test replays them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TWO = ["torchrun", "--nproc-per-node", "2"]

# name -> (faults, launcher, environment, where it makes sense)
JOBS: dict[str, tuple[str, list[str], dict[str, str], str]] = {
    "in-order": ("", [], {}, "both"),
    "eager": ("eager padding cache not-fused", [], {}, "both"),
    "to-maximum": ("to-maximum", [], {}, "both"),
    "encoder": ("encoder-padding", [], {}, "both"),
    "packed-hybrid": ("hybrid packed", [], {}, "both"),
    "packed-new-family": ("new-family packed", [], {}, "cpu"),
    "no-labels": ("no-labels", [], {}, "cpu"),
    "weights": ("weights", [], {}, "cpu"),
    "slow-loader": ("slow-loader", [], {}, "cpu"),
    "slow-examples": ("slow-examples", [], {}, "cpu"),
    "too-many-workers": ("too-many-workers", [], {}, "cpu"),
    "workers-restart": ("workers short-epochs", [], {}, "cpu"),
    "zero-fill": ("zero-fill frozen", [], {}, "cpu"),
    "bf16-weights": ("bf16-weights", [], {}, "cpu"),
    "collect": ("collect", [], {}, "cpu"),
    "garbage": ("garbage", [], {}, "cpu"),
    "save": ("save", [], {}, "cpu"),
    "anomaly": ("anomaly deterministic", [], {}, "both"),
    "verbose": ("", [], {"TORCH_LOGS": "recompiles"}, "cpu"),
    "development-mode": ("", [], {"PYTHONDEVMODE": "1"}, "cpu"),
    "interpreter": ("", [], {"TRITON_INTERPRET": "1"}, "cpu"),
    "recompiles": ("compiled padding", [], {}, "cpu"),
    "graph-breaks": ("compiled breaks", [], {}, "cpu"),
    "trainer": ("trainer short-epochs", [], {}, "cpu"),
    "math": ("math", [], {}, "both"),
    "clip": ("clip deep", [], {}, "both"),
    "compile-disabled": ("compiled", [], {"TORCH_COMPILE_DISABLE": "1"}, "cpu"),
    "reentrant": ("checkpointing reentrant", [], {}, "cpu"),
    "one-thread": ("", [], {"OMP_NUM_THREADS": "1"}, "cpu"),
    "threads": ("ddp find-unused", TWO, {"OMP_NUM_THREADS": "8"}, "cpu"),
    "one-unit": ("fsdp2-one-unit", TWO, {"OMP_NUM_THREADS": "1"}, "cpu"),
    "uneven-ranks": ("ddp padding", TWO, {"OMP_NUM_THREADS": "1"}, "cpu"),
    "reads": ("read finite-check clip boolean-indexing synchronize", [], {}, "gpu"),
    "empty-cache": ("empty-cache", [], {}, "gpu"),
    "large-vocabulary": ("large-vocabulary prompts", [], {}, "gpu"),
    "odd-vocabulary": ("odd-vocabulary", [], {}, "gpu"),
    "checkpointing": ("checkpointing", [], {}, "gpu"),
    "half": ("fp16", [], {}, "gpu"),
    "autocast": ("bf16", [], {}, "gpu"),
    "on-the-cpu": ("cpu", [], {}, "gpu"),
    "blocking": ("bf16", [], {"CUDA_LAUNCH_BLOCKING": "1"}, "gpu"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--steps", default="12")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    place = "gpu" if options.gpu else "cpu"
    for name, (faults, launcher, variables, where) in JOBS.items():
        if (options.names and name not in options.names) or where not in (place, "both"):
            continue
        answer = run(faults, launcher, variables, options.steps)
        if isinstance(answer, str):
            print(f"{name}: {answer}", flush=True)
            continue
        label = f"{place}-{name}"
        record = {
            "job": " ".join(["bench/rule_firing/job.py", faults]).strip(),
            "launcher": " ".join(launcher) or "python",
            "environment": variables,
            "findings": {finding["rule"]: finding["severity"] for finding in answer["findings"]},
            "facts": {
                fact: entry["value"] if entry["state"] == "value" else None
                for fact, entry in answer["facts"].items()
                if entry["state"] != "absent"
            },
        }
        (options.out / f"{label}.json").write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")
        print(f"{label}: {', '.join(record['findings']) or 'nothing'}", flush=True)


def run(faults: str, launcher: list[str], variables: dict[str, str], steps: str) -> dict | str:
    """The diagnosis of one job, or the last line of what went wrong."""
    start = (
        [sys.executable] if not launcher else [sys.executable, "-m", "torch.distributed.run", *launcher[1:]]
    )
    with tempfile.TemporaryDirectory() as runs:
        command = [
            sys.executable,
            "-m",
            "autotune",
            "analyze",
            "--json",
            "--quiet",
            "--runs-dir",
            runs,
            "--steps",
            steps,
        ]
        command += ["--", *start, str(HERE / "job.py"), *faults.split()]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env={**os.environ, **variables},
                timeout=300,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "took longer than 300 s"
    if done.returncode != 0:
        return (done.stderr.strip().split("\n") or ["no message"])[-1]
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
