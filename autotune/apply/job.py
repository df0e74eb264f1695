"""Make one arm of a trial: the job in a shadow tree of its own, with the changes of some plan groups.

Without groups it is the baseline arm: the same tree, nothing edited, so both arms differ in the edits alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autotune.apply.locate import EditRefused
from autotune.apply.plan import widest
from autotune.apply.shadow import Shadow
from autotune.apply.source_text import encode_as
from autotune.apply.target import Target, target_of
from autotune.apply.workbench import Changes, digest, work_out
from autotune.errors import FilesError, InputError
from autotune.records.observation import Observation
from autotune.records.plan import EditedFile, InstalledPackage, PatchedJob, PlanGroup
from autotune.store import write_record

JOB_FILE = "job.json"


def materialise(
    groups: Sequence[PlanGroup],
    observation: Observation,
    *,
    run: Path,
    label: str,
    base: PatchedJob | None = None,
    templates_dir: Path | None = None,
    wheelhouse: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> PatchedJob:
    """Write the shadow tree `run/patched/<label>/tree` and `job.json` beside it.

    `base` is what is already kept: its edits stay, and `observation` is of that job. Raises FilesError, and
    InputError when an edit is not possible any more (a file changed) or a package cannot be installed.
    """
    target = target_of(observation, base)
    members = [member for group in groups for member in group.members]
    try:
        changes = work_out(members, target, templates_dir)
    except EditRefused as fault:
        raise InputError(
            f"the change cannot be made: {fault}", hint="analyze the job again", code="change-impossible"
        ) from None
    packages: list[InstalledPackage] = list(base.packages) if base else []
    overlays = list(base.python_path) if base else []
    if changes.packages:
        from autotune.apply.packages import install

        overlay = install(
            changes.packages,
            interpreter=target.interpreter,
            run=run,
            wheelhouse=wheelhouse,
            progress=progress,
        )
        packages += [p for p in overlay.packages if p not in packages]
        overlays = [str(overlay.folder), *(o for o in overlays if o != str(overlay.folder))]
    kept = {file.path: (file, Path(file.shadow).read_bytes()) for file in (base.files if base else [])}
    folder = run.resolve() / "patched" / label
    _clear(folder)
    shadow = Shadow(folder / "tree", run)
    files = _write_files(shadow, target, changes, kept)
    job = PatchedJob(
        label=label,
        groups=[*(base.groups if base else []), *(group.id for group in groups)],
        rules=list(dict.fromkeys([*(base.rules if base else []), *(m.rule for m in members)])),
        parity=widest([base.parity if base else None, *(member.parity for member in members)]),
        command=_shadow_command(shadow, target, changes.argv),
        cwd=str(shadow.path_of(target.cwd)),
        env={**(base.env if base else {}), **changes.env, **_python_path(shadow, target, files)},
        python_path=overlays,
        original_command=list(base.original_command if base else observation.command),
        original_cwd=str(target.cwd),
        tree=str(shadow.tree),
        files=files,
        packages=packages,
        protected_roots=[
            str(p) for p in dict.fromkeys([shadow.path_of(target.cwd), target.cwd, target.import_root])
        ],
        user_roots=[str(shadow.tree)],
        fingerprint=fingerprint_of(files),
        fingerprint_files=_python_files(files),
    )
    write_record(folder / JOB_FILE, job)
    return job


def fingerprint_of(files: Sequence[EditedFile]) -> str:
    """What every rank must report of the edited Python files it ran; empty when there are none."""
    paths = _python_files(files)
    known = {f.shadow: f.sha256_after for f in files}
    return digest("".join(f"{known[path]}\n" for path in paths).encode()) if paths else ""


def _python_files(files: Sequence[EditedFile]) -> list[str]:
    return sorted(f.shadow for f in files if f.kind in ("source", "shim"))


def _write_files(
    shadow: Shadow, target: Target, changes: Changes, kept: Mapping[str, tuple[EditedFile, bytes]]
) -> list[EditedFile]:
    shadow.make_real(target.cwd)
    files: dict[str, EditedFile] = {}
    for file, content in kept.values():
        files[file.path] = file.model_copy(update={"shadow": str(shadow.write(Path(file.path), content))})
    for started in (target.script, target.shell_script):
        if started is not None and started.is_file() and str(started) not in files:
            # Python takes the import path from where the script really lies, so it is never a link.
            shadow.write(started, started.read_bytes())
    for path, text in changes.texts.items():
        old = files.pop(str(path), None)
        before = old.sha256_before if old else digest(path.read_bytes())
        content = encode_as(text, target.content(path), str(path))
        place = shadow.write(path, content)
        if digest(content) != before:
            files[str(path)] = EditedFile(
                path=str(path),
                shadow=str(place),
                kind="config" if path in changes.configs else "source",
                sha256_before=before,
                sha256_after=digest(content),
                rules=list(dict.fromkeys([*(old.rules if old else []), *changes.rules.get(path, [])])),
            )
    for module, source in changes.shims.items():
        path = target.import_root / f"{module}.py"
        content = source.encode("utf-8")
        if path.exists() and path.read_bytes() != content:
            raise InputError(
                "a file of this name is in the way of a module the patch brings",
                where=str(path),
                hint="move it away, or take an applied patch back with autotune apply --revert",
                code="file-in-the-way",
            )
        files[str(path)] = EditedFile(
            path=str(path),
            shadow=str(shadow.write(path, content)),
            kind="shim",
            sha256_before=None,
            sha256_after=digest(content),
        )
    return list(files.values())


def _shadow_command(shadow: Shadow, target: Target, argv: list[str]) -> list[str]:
    """The command with absolute paths moved into the tree; relative ones move with the working folder."""
    out = list(argv)
    at = target.command.script_index
    script = target.script
    if at is not None and script is not None:
        written = Path(target.command.script or "")
        if os.path.isabs(out[at]) or written != script:
            out[at] = str(shadow.path_of(script))
    for i, word in enumerate(out):
        if target.shell_script is not None and word == str(target.shell_script):
            out[i] = str(shadow.path_of(target.shell_script))
    for file in target.command.config_files:
        moved = str(shadow.path_of(Path(file.path)))
        if file.path in out[file.index] and os.path.isabs(file.path) and Path(moved).exists():
            out[file.index] = out[file.index].replace(file.path, moved)
    return out


def _python_path(shadow: Shadow, target: Target, files: Sequence[EditedFile]) -> dict[str, str | None]:
    """PYTHONPATH, where the user's own names a mirrored folder or modules are imported from elsewhere."""
    old = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    moved = []
    for part in old:
        place = shadow.path_of(Path(part)) if os.path.isabs(part) else None
        moved.append(str(place) if place is not None and place.is_dir() and not place.is_symlink() else part)
    roots = []
    for file in files:
        root = Path(file.path).parent
        while (root / "__init__.py").exists():
            root = root.parent
        # Without a script of the project the interpreter does not look into the folder by itself.
        unseen = target.script is None and target.command.module is None
        if (
            file.kind != "config"
            and Path(file.path) != target.script
            and (unseen or root != target.import_root)
        ):
            roots.append(str(shadow.path_of(root)))
    new = list(dict.fromkeys([*roots, *moved]))
    return {} if new == old else {"PYTHONPATH": os.pathsep.join(new)}


def _clear(folder: Path) -> None:
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    except OSError as fault:
        raise FilesError(fault.strerror or str(fault), where=str(folder)) from fault
