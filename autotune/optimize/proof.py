"""Whether a patched job was proven as it stands, and which of its changes no trial of the run contained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.records.plan import PatchedJob, Proof
from autotune.store import read_record

if TYPE_CHECKING:
    from autotune.records.plan import Plan
    from autotune.records.verdict import ArmRecord

_LABEL = re.compile(r"/patched/([^/]+)/")  # RUN/patched/LABEL/tree: where a patched job lies


def proof_of(run: Path, job: PatchedJob, plan: Plan | None) -> Proof:
    """What the trials of the run say of this job; no plan: it is the one that an optimize loop kept."""
    from autotune.records.verdict import Verdict

    paths = sorted((run / "trials").glob("*/verdict.json"))
    verdicts = [read_record(path, Verdict) for path in paths if path.parent.name != "self-check"]
    if plan is None:
        return _with_later(run, job, _of_the_loop(run))
    own = [verdict for verdict in verdicts if verdict.arms[1:] and _same(verdict.arms[-1], job)]
    tried = {rule for verdict in verdicts for arm in verdict.arms[1:] for rule in _rules_of(run, arm)}
    untried = [] if own else [rule for rule in job.rules if rule not in tried]
    best = next((verdict for verdict in own if verdict.accepted), own[-1] if own else None)
    if best is not None:
        word = "proven" if best.accepted else "not proven"
        proof = Proof(proven=best.accepted, sentence=f"{word}: {best.sentence}", untried=untried)
        return _with_later(run, job, proof) if best.accepted else proof
    if not tried:
        why = "no trial of this run has measured any of these changes"
    elif untried:
        why = f"no trial of this run contained {', '.join(untried)}"
    else:
        why = "each change was in a trial of this run, but no trial was of all of them as they stand here"
    return Proof(proven=False, sentence=f"not proven: {why}", untried=untried)


def _of_the_loop(run: Path) -> Proof:
    from autotune.records.ladder import Ladder

    path = run / "ladder.json"
    ladder = read_record(path, Ladder) if path.exists() else None
    last = ladder.rungs[-1] if ladder is not None and ladder.rungs else None
    if ladder is None or last is None or ladder.outcome != "faster" or last.ratio_to_first is None:
        return Proof(proven=False, sentence="not proven: autotune optimize has not come to its end")
    return Proof(proven=True, sentence=f"proven by autotune optimize: {last.ratio_to_first:.2f}x faster")


def _with_later(run: Path, job: PatchedJob, proof: Proof) -> Proof:
    """Beside the proof: what `autotune verify` of the same job said where it did not show it."""
    from autotune.records.verdict import Verdict

    path = run / "trials" / "verify" / "verdict.json"
    if not proof.proven or not path.exists():
        return proof
    verdict = read_record(path, Verdict)
    if verdict.accepted or not verdict.arms[1:] or not _same(verdict.arms[-1], job):
        return proof
    told = f"{proof.sentence}; autotune verify of the same changes did not show it: {verdict.sentence}"
    return proof.model_copy(update={"sentence": told})


def _same(arm: ArmRecord, job: PatchedJob) -> bool:
    """The arm ran these edits with this command and variables; only the folder of the copy may differ."""
    return (
        (arm.fingerprint or "") == job.fingerprint
        and [_anywhere(word) for word in arm.command] == [_anywhere(word) for word in job.command]
        and _variables(arm.environment) == _variables(job.env)
    )


def _variables(given: dict[str, str | None]) -> dict[str, str | None]:
    """Without the import path, which leads into the copy and depends on the shell that asks."""
    return {
        name: None if value is None else _anywhere(value)
        for name, value in given.items()
        if name != "PYTHONPATH"
    }


def _anywhere(text: str) -> str:
    return _LABEL.sub("/patched/*/", text)


def _rules_of(run: Path, arm: ArmRecord) -> list[str]:
    """The rules behind an arm, from the patched job that it started."""
    from autotune.apply.job import JOB_FILE

    label = _LABEL.search(f"{arm.cwd}/")
    path = run / "patched" / label[1] / JOB_FILE if label else None
    if path is None or not path.exists():
        return []
    job = read_record(path, PatchedJob)
    return job.rules if job.fingerprint == (arm.fingerprint or "") else []
