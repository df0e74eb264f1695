"""docs/diagnosis.md: what is planted, what it costs, and what the first and the latest score found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from bench.faults import report, scores
from bench.faults.cases import HERE, Case, load_cases
from bench.faults.fix import ENOUGH, FIX, FIX_UNSAFE, totals
from bench.faults.gpu import beside, plan
from bench.faults.measure import MEASURED
from bench.faults.score import Mark

UNSEEN = HERE / "scores" / "unseen.md"  # trials on jobs written for the occasion and not kept
ON_A_GPU = HERE / "scores" / "gpu.json"
FIRST_ON_A_GPU = HERE / "scores" / "gpu-first.json"
GPU_NOTES = HERE / "scores" / "gpu.md"  # what the score on a GPU showed
REASONS = HERE / "scores" / "reasons.yaml"  # job -> why it is missed, or not named first

INTRODUCTION = """# Diagnosis: the score

`bench/faults/` holds small real training jobs: references written well, the same with one inefficiency
planted, some with two or three, and healthy ones. What is planted, and what autotune is expected to say,
was written from knowledge of training alone, without looking at autotune's rules, and frozen before the
first score. Each slug of a cause was matched to rules by their titles afterwards
(`bench/faults/causes.yaml`). Repairs of jobs that would not run are listed in `bench/faults/CHANGES.md`.

* **named**: a finding above `info` states the planted cause (or an alternative declared beforehand).
* **first**: the first finding above `info` does.
* **place**: such a finding points at the planted line.
* **false alarms**: every other finding above `info`.

The first score is the one that says how autotune does on jobs nobody tuned it to. Its misses were studied and
their general causes mended, so the latest score says how these jobs fare now, not how unseen ones would.

This page is written by `python -m bench.faults --write-docs`.
"""


HOW_ON_A_GPU = """\
Sizes are those of `gpu_args`: a step keeps the GPU busy, unless the fault is about the host. The healthy twin
of a job is the reference with the same arguments. **slowdown**: unprofiled time of a token, sick against
twin, and in brackets the timed steps of both. **of its own**: the first finding that the twin does not get is
a planted cause. What the twin gets as well is no effect of the fault; the first five counts are strict.
A fault of time that costs less than 2 % there is listed, and a second count leaves it out: a tool that
names what costs nothing is wrong. Two words in a column: the first run on a GPU (small sizes, no twins),
then this one.
"""

HOW_REPAIRED = """\
`autotune optimize`, without `--unsafe`, on each job whose fault costs time on a CPU. What it kept
is timed again without autotune: reference, sick job and patched copy take turns. **recovered**: the
share of the planted slowdown that is gone, of the fastest start of each, and in brackets the
smallest and largest value over the turns. Above 100 % the patched job is faster than the reference,
or the turns differ by more than the fault costs: where a fault costs little, noise makes the range
wide. A job that was left as it was, and whose fault cost less than 2 % when it was timed again, is named
below, and counts as not recovered all the same.
"""

HOW_REVIEWED = """\
The same with `--unsafe` on jobs that were not repaired without it: changes that a person should review, for
they alter on purpose what is saved, logged or evaluated, or which examples share a batch.
"""


def write_docs() -> Path:
    """Write the page from the stored scores and the table of measured costs."""
    cases = load_cases()
    causes = scores.load_causes()
    parts = [INTRODUCTION]
    judged: dict[str, dict[str, Mark]] = {}
    for name, title in (("first", "First score"), ("latest", "Latest score")):
        path = scores.SCORES / f"{name}.json"
        if not path.exists():
            continue
        heading, answers = scores.read(path)
        marks, totals = scores.judge(cases, answers, causes, heading.get("wall_s"))
        judged[name] = {m.case.id: m for m in marks}
        parts.append(f"## {title}\n\n{headline(heading)}\n")
        parts.append("\n".join(f"* {line}" for line in report.summary(totals)) + "\n")
    measured = yaml.safe_load(MEASURED.read_text())
    newest = judged.get("latest") or judged.get("first") or {}
    first = judged.get("first", {})
    parts += [
        _sick(cases, measured, _gpu_costs(cases, causes), first, newest),
        _missed(newest),
        _healthy(cases, first, newest),
    ]
    if ON_A_GPU.exists():
        parts.append(_on_a_gpu(cases, causes))
    if FIX.exists():
        parts.append(_fixes("Repairs", json.loads(FIX.read_text()), cases))
    if FIX_UNSAFE.exists():
        parts.append(_fixes("Repairs with `--unsafe`", json.loads(FIX_UNSAFE.read_text()), cases))
    if FIX.exists() and FIX_UNSAFE.exists():
        parts.append(
            _together(json.loads(FIX.read_text())["jobs"], json.loads(FIX_UNSAFE.read_text())["jobs"])
        )
    if UNSEEN.exists():
        parts.append(UNSEEN.read_text())
    report.DOCS.write_text("\n".join(parts))
    return report.DOCS


def headline(heading: dict[str, Any]) -> str:
    """How, when and where a score was taken, and what its time is."""
    said = f"`{heading['command']}`, {heading['when']}, {heading['machine']}"
    if not heading.get("wall_s"):
        return f"{said}; the time is the sum over the jobs."
    others = heading.get("others_cores")
    beside = "" if others is None else f" Other programs used {others:.2f} cores meanwhile, on average."
    return (
        f"{said}, in one piece at commit {heading['commit']}; the time is from its start to its end.{beside}"
    )


def _gpu_costs(cases: list[Case], causes: dict[str, list[str]]) -> dict[str, str]:
    """Job -> its slowdown beside its healthy twin on the GPU."""
    if not ON_A_GPU.exists():
        return {}
    rows = beside(plan(cases), scores.read(ON_A_GPU)[1], causes)
    return {row.mark.case.id: f"{row.slowdown:.2f}x on a GPU" for row in rows if row.slowdown is not None}


def _sick(cases, measured, on_gpu, first, newest):  # type: ignore[no-untyped-def]
    lines = [
        "## Planted faults\n",
        "Slowdown: of a step, sick against healthy, without autotune (`bench/faults/measured.yaml`).",
        "A fault of memory or correctness need not be slow. Two words: the first score, then the latest.",
        "Not run: only a GPU shows it, and a section below has its score. Place: a dash where no one line is",
        "planted, or nothing was named.\n",
        "| job | planted | slowdown | first | named | place | false alarms |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        if case.healthy:
            continue
        cost = measured.get(case.id)
        slow = on_gpu.get(case.id, "GPU" if case.needs == "gpu" else "-")
        slow = f"{cost['slowdown']:.2f}x" if cost else slow
        slow = slow if case.sick == "time" else f"{slow} ({case.sick})"
        old, new = first.get(case.id), newest.get(case.id)
        if new is None:
            lines.append(f"| {case.id} | {case.title} | {slow} | not run | not run | | |")
            continue
        change = _change(old and ("yes" if old.first else "no"), "yes" if new.first else "no")
        named = _change(old and report.first_named(old), report.first_named(new))
        place = {True: "yes", False: "no", None: "-"}[new.pointed]
        alarms = ", ".join(f"`{said.rule}`" for said in new.false_alarms) or "-"
        lines.append(f"| {case.id} | {case.title} | {slow} | {change} | {named} | {place} | {alarms} |")
    return "\n".join(lines) + "\n"


def _missed(newest: dict[str, Mark]) -> str:
    """The jobs of the latest score with a cause that was not named, or not named first, and why."""
    reasons = (yaml.safe_load(REASONS.read_text()) if REASONS.exists() else None) or {}
    lines = ["## Missed\n"]
    for name, m in newest.items():
        if m.case.healthy or (m.all_named and m.first):
            continue
        what = "named, not first" if m.all_named else f"{m.named} of {m.planted} named"
        lines.append(f"* {name} ({what}): {reasons.get(name, 'the reason is not known')}")
    if len(lines) == 1:
        lines.append("Nothing: every planted cause of the jobs that a CPU can show is named, and first.")
    return "\n".join(lines) + "\n"


def _on_a_gpu(cases: list[Case], causes: dict[str, list[str]]) -> str:
    """The faults that only a GPU shows, with their own score and beside their healthy twins."""
    heading, answers = scores.read(ON_A_GPU)
    visit = plan(cases)
    old: dict[str, Mark] = {}
    lines = []
    if FIRST_ON_A_GPU.exists():
        old_heading, old_answers = scores.read(FIRST_ON_A_GPU)
        old_marks, old_totals = scores.judge(list(visit.cases), old_answers, causes)
        old = {m.case.id: m for m in old_marks}
        lines = [f"First run: {report.summary(old_totals)[0]} ({old_heading['machine']}).\n"]
    marks, totals = scores.judge(list(visit.cases), answers, causes, heading.get("wall_s"))
    rows = beside(visit, answers, causes)
    lines = [f"## Faults that only a GPU shows\n\n{headline(heading)}\n", *lines]
    lines += [HOW_ON_A_GPU] if any(row.twin for row in rows) else []
    lines += [f"* {line}" for line in report.summary(totals)]
    lines += [f"* {line}" for line in report.beside_summary(rows, heading.get("not_run", {}))]
    lines += [
        "",
        "| job | planted | slowdown | first | named | place | also of the twin | of the sick job only |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        m = row.mark
        pointed = {True: "yes", False: "no", None: "-"}[m.pointed]
        first = "yes" if m.first else "of its own" if row.first_of_own and row.twin else "no"
        before = old.get(m.case.id)
        first = _change(before and ("yes" if before.first else "no"), first)
        named = _change(before and report.first_named(before), report.first_named(m))
        shared, own = (", ".join(f"`{rule}`" for rule in some) or "-" for some in (row.shared, row.own))
        shared = shared if row.twin else "no twin"
        lines.append(
            f"| {m.case.id} | {m.case.title} | {report.slowdown(row)} | {first} | {named} "
            f"| {pointed} | {shared} | {own} |"
        )
    twins = [m for m in marks if m.case.healthy]
    if twins:
        lines += ["", "| healthy twin | arguments | ms a step | findings above info |", "|---|---|---|---|"]
    for m in twins:
        pace = f"{m.answer.pace.ms:.0f}" if m.answer.pace else "-"
        said = ", ".join(f"`{alarm.rule}`" for alarm in m.false_alarms) or "none"
        said = f"failed: {m.answer.failure.splitlines()[-1][:80]}" if m.answer.failure else said
        lines.append(f"| {m.case.id} | `{m.case.family}.py {m.case.args}` | {pace} | {said} |")
    notes = GPU_NOTES.read_text() if GPU_NOTES.exists() else ""
    return "\n".join([*lines, "", notes])


def _healthy(cases, first, newest):  # type: ignore[no-untyped-def]
    lines = ["## Healthy jobs\n", "| job | what it is | first score | latest score |", "|---|---|---|---|"]
    for case in cases:
        if case.healthy and case.id in newest:
            said = [_alarms(table.get(case.id)) for table in (first, newest)]
            lines.append(f"| {case.id} | {case.title} | {said[0]} | {said[1]} |")
    return "\n".join(lines) + "\n"


def _alarms(m: Mark | None) -> str:
    if m is None:
        return "not run"
    return ", ".join(f"`{said.rule}`" for said in m.false_alarms) or "silent"


def _change(old: str | None, new: str) -> str:
    return new if old is None or old == new else f"{old} → {new}"


def _fixes(title: str, document: dict[str, Any], cases: list[Case]) -> str:
    """What the whole loop made of the faults that cost time."""
    rows = document["jobs"]
    sums = totals(rows)
    single = sums["single_recovered"]
    titles = {case.id: case for case in cases}
    lines = [
        f"## {title}\n",
        f"`{document['command']}`, {document['machine']}.\n",
        HOW_REPAIRED if title == "Repairs" else HOW_REVIEWED,
        f"* at least {100 * ENOUGH:.0f} % recovered on {single} of {sums['single']} single faults, on "
        f"{sums['recovered'] - single} of {sums['faults'] - sums['single']} pairs and triples",
        f"* a change kept on {sums['kept']}; kept changes that broke training: {len(sums['broken'])}",
        f"* not recovered, and the fault cost nothing here: {', '.join(sums['cost_nothing']) or 'none'}\n",
        "| job | expected fix | slowdown | kept | planned | found | recovered | training |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        case = titles.get(row["case"])
        if case is not None and row["kept"] and not row.get("failure"):
            lines.append(_repair(row, case))
    if all(row["kept"] and not row.get("failure") for row in rows):
        return "\n".join(lines) + "\n"
    lines += ["", "Not repaired:\n", "| job | expected fix | why |", "|---|---|---|"]
    for row in rows:
        case = titles.get(row["case"])
        if case is not None and (row.get("failure") or not row["kept"]):
            why = (row.get("failure") or row.get("why") or "").replace("|", "/").replace("\n", " ")
            lines.append(f"| {case.id} | {case.fix} | {why} |")
    return "\n".join(lines) + "\n"


def _together(safe: list[dict[str, Any]], reviewed: list[dict[str, Any]]) -> str:
    """Both shares: a job that was run with --unsafe too counts with the better of its rows."""
    rows = {row["case"]: row for row in safe}
    for row in reviewed:
        if not row.get("failure") and (row["recovered"] or 0) > (
            rows.get(row["case"], row)["recovered"] or 0
        ):
            rows[row["case"]] = row
    one, both = totals(safe), totals(list(rows.values()))
    shares = [f"{sums['single_recovered']} of {sums['single']}" for sums in (one, both)]
    return (
        f"At least {100 * ENOUGH:.0f} % recovered, single faults: {shares[0]} without `--unsafe`, "
        f"{shares[1]} with it.\n"
    )


def _repair(row: dict[str, Any], case: Case) -> str:
    kept = ", ".join(f"`{rule}`" for rule in row["kept"])
    planned = "{}x to {}x".format(*row["expected"]) if row["expected"] else "-"
    share = report.percent(row["recovered"])
    if row["recovered_range"]:
        share += " ({:.0f} to {:.0f})".format(*(100 * value for value in row["recovered_range"]))
    return (
        f"| {case.id} | {case.fix} | {row['slowdown']:.2f}x | {kept} | {planned} | {row['ratio']:.2f}x "
        f"| {share} | {row['parity']} |"
    )
