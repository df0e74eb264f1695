"""Kill an optimize run with SIGKILL at random moments, resume it, and count what went wrong.

    python bench/kill_resume.py --kills 20 --out /tmp/kill_resume

A small CPU job sleeps in every step; one planted rule takes the sleep away (a large effect), another does
nothing. First one run goes through undisturbed. Then runs are killed, again and again, each time after a
random number of seconds, and resumed, until that many kills are made. Of every run it is checked that no
finished start was made again, that the same changes are kept as in the undisturbed run, and that the user's
folder is the same to the byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

JOB = """
import os, pathlib, time, torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
pause = 0.01 if "NO_PAUSE" in os.environ else 0.06
data = torch.utils.data.TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
for i, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=4)):
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    time.sleep(pause)
    optimizer.step()
    optimizer.zero_grad()
    with open(pathlib.Path(__file__).parent / "metrics.jsonl", "a") as log:
        log.write("{}\\n")
    if i % 5 == 4:
        torch.save(model.state_dict(), pathlib.Path(__file__).parent / "last.pt")
"""
RULE = """
id: kernels/{name}
title: {title}
severity: high
confidence: high
when:
  all: [run.is_training, run.step_ms >= 30]
evidence: [run.step_ms]
gain: {{ratio: "{ratio}", basis: planted}}
message: Planted.
caution: Planted.
fix:
  - surface: env-var
    title: Set {variable}
    steps: [{{action: set_env, name: {variable}, value: "1"}}]
parity: bitwise
examples:
  - {{name: slow, facts: {{run.is_training: true, run.step_ms: 50.0}}, expect: match}}
  - {{name: quick, facts: {{run.is_training: true, run.step_ms: 5.0}}, expect: no-match}}
"""
RULES = {
    "pause": {"title": "A pause in every step", "ratio": "3", "variable": "NO_PAUSE"},
    "nothing": {"title": "Something without effect", "ratio": "1.4", "variable": "NOTHING"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least-s", type=float, default=2.0, help="earliest moment of a kill")
    parser.add_argument(
        "--most-s",
        type=float,
        help="latest moment of a kill; by default half of what the undisturbed run took",
    )
    parser.add_argument("--out", type=Path, required=True, help="an empty folder")
    flags = parser.parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    draw = random.Random(flags.seed)
    undisturbed = Run(flags.out / "undisturbed")
    undisturbed.go(None)
    expected = undisturbed.kept()
    print(
        f"undisturbed: {undisturbed.seconds:.0f} s, {len(undisturbed.stamps())} starts, kept {expected}",
        flush=True,
    )
    most_s = flags.most_s or undisturbed.seconds / 2
    kills, runs, repeated, other, touched, failed = 0, 0, 0, 0, 0, 0
    while kills < flags.kills:
        runs += 1
        run = Run(flags.out / f"killed-{runs:02d}")
        while True:
            moment = draw.uniform(flags.least_s, most_s) if kills < flags.kills else None
            before = run.stamps()
            done = run.go(moment)
            after = run.stamps()
            repeated += sum(after.get(label) != stamp for label, stamp in before.items())
            if done is None:
                kills += 1
                print(
                    f"run {runs}: killed after {moment:.1f} s with {len(after)} finished starts", flush=True
                )
                continue
            failed += done != 0
            break
        other += run.kept() != expected
        touched += run.changed()
        print(f"run {runs}: ended with exit code {done}, kept {run.kept()}", flush=True)
    report = {
        "kills": kills,
        "runs": runs,
        "finished starts made again": repeated,
        "runs that kept other changes": other,
        "runs that failed": failed,
        "runs that changed the user's folder": touched,
    }
    print(json.dumps(report, indent=1))
    sys.exit(bool(repeated or other or failed or touched))


class Run:
    """One optimize run in a folder of its own, with the user's job beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.job = folder, folder / "job"
        self.job.mkdir(parents=True)
        (self.job / "train.py").write_text(JOB)
        (self.job / "last.pt").write_bytes(b"the user's own file")
        for name, fields in RULES.items():
            path = folder / "pack" / "kernels" / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(RULE.format(name=name, **fields))
        self.before = self.digest()
        self.seconds = 0.0

    def go(self, kill_after_s: float | None) -> int | None:
        """Start, or resume; None when it was killed. A run whose first look was cut is started anew."""
        select = [word for name in RULES for word in ("--select", f"kernels/{name}")]
        command = [sys.executable, "-m", "autotune", "optimize", "--json", "--steps", "8", "--rules",
                   str(self.folder / "pack"), "--runs-dir", str(self.folder / "runs"), *select]  # fmt: skip
        run = self.run()
        if run is not None:
            command += ["--resume", run.name]
        else:
            command += ["--", sys.executable, "train.py"]
        started = time.monotonic()
        with (self.folder / "output.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.job, stdout=log, stderr=log, start_new_session=True)
            try:
                code = process.wait(timeout=kill_after_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None
            finally:
                self.seconds += time.monotonic() - started
        return code

    def run(self) -> Path | None:
        """The run that can be resumed."""
        found = sorted((self.folder / "runs").glob("at-*/launches/observe/observation.json"))
        return found[-1].parents[2] if found else None

    def stamps(self) -> dict[str, int]:
        """Finished starts and when they were written."""
        run = self.run()
        if run is None:
            return {}
        paths = run.glob("**/observation.json")
        return {str(path.relative_to(run)): path.stat().st_mtime_ns for path in paths}

    def kept(self) -> list[str]:
        run = self.run()
        if run is None or not (run / "ladder.json").is_file():
            return ["no ladder"]
        ladder = json.loads((run / "ladder.json").read_text())
        return sorted(rule for rung in ladder["rungs"] for rule in rung["rules"])

    def changed(self) -> bool:
        return self.digest() != self.before

    def digest(self) -> str:
        """Names, sizes and bytes of the user's folder."""
        whole = hashlib.sha256()
        for path in sorted(self.job.rglob("*")):
            whole.update(str(path.relative_to(self.job)).encode())
            if path.is_file():
                whole.update(path.read_bytes())
        return whole.hexdigest()


if __name__ == "__main__":
    main()
