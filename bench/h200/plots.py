"""Draw the figures of docs/h200.md from bench/h200/results/figures.json.

pip install matplotlib
python bench/h200/plots.py docs/images
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results" / "figures.json"
PARTS = (
    ("matrix products", "kernels.gemm_frac", "#2b6cb0"),
    ("attention", "attention.gpu_frac", "#63b3ed"),
    ("elementwise, norms", "kernels.elementwise_frac", "#ed8936"),
)


def split_ms(job: dict[str, Any]) -> list[tuple[str, float, str]]:
    """A step by kind of work; the rest of the busy time, communication nothing hides, and idle time."""
    step, busy = job["run.step_ms"], job["launch.gpu_busy_frac"]
    exposed = job["comm.exposed_frac"] or 0.0
    rows = [(name, job[fact] * busy * step, colour) for name, fact, colour in PARTS]
    rest = busy * step - exposed * step - sum(ms for _, ms, _ in rows)
    rows.append(("other GPU work", rest, "#a0aec0"))
    rows.append(("exposed communication", exposed * step, "#e53e3e"))
    rows.append(("GPU idle", (1.0 - busy) * step, "#edf2f7"))
    return rows


def draw_splits(jobs: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(len(jobs), 1, figsize=(8, 1.1 * len(jobs) + 0.9))
    for axis, job in zip(axes, jobs, strict=True):
        left = 0.0
        for name, ms, colour in split_ms(job):
            axis.barh([0], [ms], left=left, color=colour, edgecolor="#4a5568", linewidth=0.4, label=name)
            left += ms
        said = 100 * job["device.utilisation_frac"]
        title = f"{job['job']}: {job['run.step_ms']:,.0f} ms a step; nvidia-smi {said:.0f} %, "
        axis.set_title(title + f"MFU {100 * job['run.mfu_frac']:.0f} %", fontsize=9, loc="left")
        axis.set_yticks([])
        axis.set_xlim(0, left)
        axis.tick_params(labelsize=7)
    axes[-1].set_xlabel("ms", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=6, fontsize=7, loc="lower center", frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path)


def draw_speeds(speeds: list[dict[str, Any]], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(8, 0.42 * len(speeds) + 0.6))
    for place, row in enumerate(speeds):
        value = row["useful_tokens_per_s"]
        own = "TRL" not in row["what"] and place > 0
        axis.barh([-place], [value], color="#2b6cb0" if own else "#a0aec0")
        end = value
        if "interval" in row:
            low, high = (bound * row["of"] for bound in row["interval"])
            axis.plot([low, high], [-place, -place], color="black", linewidth=1.2, marker="|")
            end = high
        axis.text(end + 300, -place, f"{value:,}", va="center", fontsize=8)
    axis.set_yticks([-n for n in range(len(speeds))], [row["what"] for row in speeds], fontsize=8)
    axis.set_xlabel("useful tokens/s, 2.4B on one H200 (line: 98 % interval)", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.set_xlim(0, 32000)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = json.loads(RESULTS.read_text())
    plt.rcParams["svg.hashsalt"] = "autotune"
    draw_splits(found["jobs"], folder / "h200-step.svg")
    draw_speeds(found["speeds_2.4b"], folder / "h200-speed.svg")
