"""What each finding's fix would change, as diffs. The edits are made again in memory; nothing is written."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from autotune.apply.locate import EditRefused
from autotune.errors import AutotuneError
from autotune.records.findings import Diagnosis
from autotune.records.observation import Observation
from autotune.records.plan import PatchedJob, PlanGroup
from autotune.report.html.diffs import file_of, split_diff
from autotune.report.html.view import Change, DiffFile


def changes_of(diagnosis: Diagnosis, observation: Observation | None) -> dict[str, Change]:
    """For each rule with an edit its change alone, against the files as they are on disk now."""
    from autotune.apply.plan import Choice, build_plan

    if observation is None:
        return {}
    try:
        plan = build_plan(diagnosis, observation, choice=Choice(unsafe=True))
    except (AutotuneError, EditRefused, OSError) as fault:
        return _refused(diagnosis, str(fault))
    found: dict[str, Change] = {}
    for group in plan.groups:
        change = _change(group, observation)
        for rule in group.rules:
            found[rule] = change
    for advice in plan.advice:
        found.setdefault(advice.rule, Change(files=[], reason="; ".join(advice.reasons)))
    return found


def _refused(diagnosis: Diagnosis, reason: str) -> dict[str, Change]:
    with_edit = [f.rule for f in diagnosis.findings if any(fix.steps for fix in f.fixes)]
    return {rule: Change(files=[], reason=reason) for rule in with_edit}


def _change(group: PlanGroup, observation: Observation) -> Change:
    from autotune.apply.target import target_of
    from autotune.apply.workbench import work_out

    target = target_of(observation)
    files: list[DiffFile] = []
    try:
        made = work_out(group.members, target)
        for path, text in made.texts.items():
            before = target.text(path)
            if before != text:
                files.append(file_of(_name(path, target.cwd), _diff(before, text)))
    except (AutotuneError, EditRefused, OSError) as fault:
        return Change(files=[], reason=str(fault))
    for module, source in made.shims.items():
        path = target.import_root / f"{module}.py"
        files.append(file_of(_name(path, target.cwd), _diff("", source), new=True))
    command = [f"package {name}" for name in made.packages]
    command += [
        f"{name}={value}" if value is not None else f"unset {name}" for name, value in made.env.items()
    ]
    gone = [word for word in target.command.argv if word not in made.argv]
    new = [word for word in made.argv if word not in target.command.argv]
    if gone or new:
        command.append(
            f"command line: {' '.join(gone) or '(nothing)'} becomes {' '.join(new) or '(nothing)'}"
        )
    reason = "" if files or command else group.reason or "there is nothing left to change"
    return Change(files=files, command=command, reason=reason)


def _diff(before: str, after: str) -> list[str]:
    return list(difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm=""))


def _name(path: Path, cwd: Path) -> str:
    relative = os.path.relpath(path, cwd)
    return str(path) if relative.startswith(os.path.join("..", "..")) else Path(relative).as_posix()


def kept_change_of(job: PatchedJob | None) -> Change | None:
    """All kept changes of an optimize run together; None when nothing was kept."""
    from autotune.apply.deliver import command_line, diff_of

    if job is None:
        return None
    try:
        files = split_diff(diff_of(job))
    except (OSError, UnicodeDecodeError) as fault:
        return Change(files=[], reason=f"the patched files cannot be read any more: {fault}")
    packages = [f"package {p.name} {p.version}" for p in job.packages]
    return Change(files=files, command=[*packages, f"$ {command_line(job, {})}"])
