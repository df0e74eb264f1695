"""Hand over a patched job: the diff, the manifest, and files that run without autotune.

One edited script becomes a sibling `<name>_autotuned.py`; edits of several files, or of a module, become a
patch for `git apply`. Every delivery lists its files with hashes, so that `revert` needs nothing else.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from autotune.apply.shadow import original_of
from autotune.apply.source_text import decode
from autotune.apply.workbench import digest
from autotune.errors import FilesError, InputError
from autotune.records.plan import EditedFile, Manifest, ManifestFile, PatchedJob, Proof
from autotune.records.terms import Surface
from autotune.store import read_record, write_record, write_text

MANIFEST = "manifest.json"
DIFF = "changes.diff"
SUFFIX = "_autotuned"
Mode = Literal["sibling", "patch", "in-place", "command"]


def preview(job: PatchedJob, *, full: bool = False) -> str:
    """The diff of the user's files and a line for each module the patch adds (its text with `full`); then
    the command."""
    root = project_root(job)
    parts = []
    for file in job.files:
        if full or file.sha256_before is not None:
            parts.append(_file_diff(file, root, raw=False))
            continue
        lines = len(Path(file.shadow).read_bytes().splitlines())
        rules = f" for {', '.join(file.rules)}" if file.rules else ""
        parts.append(f"new module {Path(file.path).name}, {lines} lines{rules} (--full shows it)\n")
    return "".join(parts) + f"\n$ {command_line(job, {})}\n"


def diff_of(job: PatchedJob, *, raw: bool = False) -> str:
    """A unified diff `git apply` takes from the project's root.

    With `raw`, bytes that are not UTF-8 stand in it as surrogates, to be written as they were.
    """
    root = project_root(job)
    parts = [_file_diff(file, root, raw) for file in job.files]
    return "".join(parts)


def deliver(
    job: PatchedJob, *, run: Path, in_place: bool = False, write: bool = True, proof: Proof | None = None
) -> Manifest:
    """Write diff and manifest into the run and, with `write`, the result beside the user's files.

    Raises InputError when the run is applied already, a file changed meanwhile, or `in_place` meets a git
    tree that is not clean; FilesError when a place cannot be written.
    """
    folder = run.resolve() / "patched"
    applied = _applied(run)
    if write:
        _refuse_second(run, applied)
        for file in job.files:
            _refuse_changed(file)
    mode = _mode(job, in_place)
    if in_place and write:
        _refuse_unclean(job)
    plan = _files(job, mode, folder if write else None)
    renamed = {source: Path(made.path) for source, made, _ in plan if made.action == "created" and source}
    manifest = Manifest(
        run=run.name,
        mode=mode,
        rules=job.rules,
        surfaces=_surfaces(job),
        files=[made for _, made, _ in plan] if write else [],
        diff=f"patched/{DIFF}",
        launch_command=command_line(job, renamed if mode in ("sibling", "command") else {}),
        packages=job.packages,
        written=write,
        steps_by_hand=_by_hand(job, mode, [made for _, made, _ in plan]),
        proof=proof,
    )
    if applied is None:  # what is applied keeps its manifest: it is the way back
        write_text(folder / DIFF, diff_of(job))
        write_record(folder / MANIFEST, manifest)
    if write:
        try:
            _write(plan, run.resolve())
        except BaseException:
            write_record(folder / MANIFEST, manifest.model_copy(update={"written": False, "files": []}))
            raise
    return manifest


def revert(run: Path) -> list[str]:
    """Take away what `deliver` wrote, put back what it changed; gives the paths. Raises InputError."""
    path = run.resolve() / "patched" / MANIFEST
    manifest = read_record(path, Manifest)
    if not manifest.written:
        raise InputError("nothing of this run is applied", where=run.name, code="nothing-applied")
    for file in manifest.files:
        place = Path(file.path)
        if place.exists() and digest(place.read_bytes()) not in (file.sha256_after, _before(file)):
            raise InputError(
                "this file was edited after it was written",
                where=file.path,
                hint="move it away first",
                code="file-changed",
            )
    done = []
    for file in manifest.files:
        place = Path(file.path)
        if file.action == "changed" and file.backup is not None:
            _put(place, (run.resolve() / file.backup).read_bytes())
            done.append(file.path)
        elif place.exists():
            place.unlink()
            done.append(file.path)
    write_record(path, manifest.model_copy(update={"written": False, "files": []}))
    return done


def _before(file: ManifestFile) -> str | None:
    """Digest of a changed file that was not reached before the writing broke off."""
    return file.sha256_before if file.action == "changed" else None


def command_line(job: PatchedJob, renamed: dict[str, Path]) -> str:
    """One line for a shell that starts the result from the user's working folder."""
    tree = Path(job.tree)
    cwd = Path(job.original_cwd)
    words = []
    for word in job.command:
        path = original_of(tree, Path(word)) if word.startswith(str(tree)) else None
        word = str(path) if path is not None else word
        words.append(_renamed_word(word, cwd, renamed))
    lead = [
        f"{name}={shlex.quote(value)}" for name, value in job.env.items() if value and name != "PYTHONPATH"
    ]
    unset = [f"-u {name}" for name, value in job.env.items() if value is None]
    if job.python_path:
        folders = os.pathsep.join(job.python_path)
        lead.append(f'PYTHONPATH={shlex.quote(folders)}"${{PYTHONPATH:+:$PYTHONPATH}}"')
    head = " ".join(["env", *unset, *lead]) + " " if unset else "".join(f"{part} " for part in lead)
    return head + shlex.join(words)


def project_root(job: PatchedJob) -> Path:
    """The git root of the edited files where there is one, else the folder that holds them all."""
    paths = [Path(file.path).parent for file in job.files] or [Path(job.original_cwd)]
    common = Path(os.path.commonpath(paths))
    for folder in (common, *common.parents):
        if (folder / ".git").exists():
            return folder
    return common


def _mode(job: PatchedJob, in_place: bool) -> Mode:
    if in_place:
        return "in-place"
    sources = [file for file in job.files if file.kind == "source"]
    configs = [file for file in job.files if file.kind == "config"]
    if not sources:
        return "command"
    script = _script(job)
    if script is None:
        return "patch"  # nothing on the command line could name a copy: a shell script starts the original
    one = len(sources) == 1 and Path(sources[0].path) == script
    return "sibling" if one and not configs else "patch"


def _script(job: PatchedJob) -> Path | None:
    """The user's script or module file that a word of the command names."""
    from autotune.observe.command import read_command

    cwd = Path(job.original_cwd)
    command = read_command(job.original_command, cwd)
    if command.script is not None and command.script_index is not None:
        path = Path(os.path.normpath(command.script))
        return path.resolve() if path.is_symlink() else path
    if command.module is not None:
        stem = cwd / command.module.replace(".", "/")
        for path in (stem.with_suffix(".py"), stem / "__main__.py"):
            if path.is_file():
                return path
    return None


def _renamed_word(word: str, cwd: Path, renamed: dict[str, Path]) -> str:
    """A command word that names a renamed file, as path, as --flag=path or as module."""
    for source, target in renamed.items():
        head, equal, value = word.rpartition("=")
        path = Path(os.path.normpath(cwd / value))
        if str(path) == source or str(path.resolve()) == source:
            shown = str(target) if os.path.isabs(value) else os.path.relpath(target, cwd)
            return f"{head}{equal}{shown}"
        module = os.path.relpath(source, cwd).removesuffix(".py").replace(os.sep, ".")
        if word == module:
            return os.path.relpath(target, cwd).removesuffix(".py").replace(os.sep, ".")
    return word


_Planned = tuple[str, ManifestFile, bytes]  # user's file ("" for none), record, content


def _files(job: PatchedJob, mode: Mode, backups: Path | None) -> list[_Planned]:
    """What to write where; originals that will change are copied into `backups` first."""
    if mode == "patch":
        content = diff_of(job, raw=True).encode("utf-8", "surrogateescape")
        name = (_script(job) or Path(job.original_cwd) / "job").stem + f"{SUFFIX}.patch"
        place = project_root(job) / name
        return [("", ManifestFile(path=str(place), action="created", sha256_after=digest(content)), content)]
    out: list[_Planned] = []
    for file in job.files:
        content = Path(file.shadow).read_bytes()
        original = Path(file.path)
        new = file.sha256_before is None
        place = original if new or mode == "in-place" else original.with_stem(original.stem + SUFFIX)
        backup = None
        if mode == "in-place" and not new:
            backup = f"patched/before/{len(out)}-{original.name}"
            if backups is not None:
                _put(backups / "before" / f"{len(out)}-{original.name}", original.read_bytes())
        record = ManifestFile(
            path=str(place),
            action="changed" if backup else "created",
            original=None if new else file.path,
            sha256_before=file.sha256_before,
            sha256_after=digest(content),
            backup=backup,
            rules=file.rules,
        )
        out.append(("" if new else file.path, record, content))
    return out


def _write(plan: Sequence[_Planned], run: Path) -> None:
    for _, record, _ in plan:
        if record.action == "created" and Path(record.path).exists():
            raise InputError(
                "this file is there already",
                where=record.path,
                hint="move it away first",
                code="file-in-the-way",
            )
    done: list[Path] = []
    try:
        for _, record, content in plan:
            _put(Path(record.path), content, like=record.original)
            done.append(Path(record.path))
    except FilesError:
        for (_, record, _), place in zip(plan, done, strict=False):
            if record.backup is not None:
                _put(place, (run / record.backup).read_bytes())
            else:
                place.unlink(missing_ok=True)
        raise


def _put(place: Path, content: bytes, like: str | None = None) -> None:
    scratch = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content)
        model = Path(like) if like else place
        if model.exists():
            scratch.chmod(model.stat().st_mode & 0o777)
        os.replace(scratch, place)
    except OSError as fault:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise FilesError(fault.strerror or str(fault), where=str(place)) from fault


def _applied(run: Path) -> Manifest | None:
    """The manifest of what is applied now."""
    path = run.resolve() / "patched" / MANIFEST
    there = read_record(path, Manifest) if path.exists() else None
    return there if there is not None and there.written else None


def _refuse_second(run: Path, applied: Manifest | None) -> None:
    if applied is not None:
        where = applied.files[0].path if applied.files else run.name
        raise InputError(
            "this run is applied already",
            where=where,
            hint="autotune apply --revert takes it back",
            code="already-applied",
        )


def _refuse_changed(file: EditedFile) -> None:
    original = Path(file.path)
    if file.sha256_before is None:
        if original.exists():
            raise InputError(
                "a file of this name is in the way",
                where=file.path,
                hint="move it away first",
                code="file-in-the-way",
            )
        return
    if not original.exists() or digest(original.read_bytes()) != file.sha256_before:
        raise InputError(
            "this file has changed since the run",
            where=file.path,
            hint="analyze the job again",
            code="file-changed",
        )


def _refuse_unclean(job: PatchedJob) -> None:
    root = project_root(job)
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
        )
    except OSError:
        raise InputError(
            "--in-place wants a clean git tree, and git is not installed",
            where=str(root),
            code="tree-not-clean",
        ) from None
    if done.returncode != 0:
        raise InputError(
            "--in-place wants a clean git tree; this is none", where=str(root), code="tree-not-clean"
        )
    if done.stdout.strip():
        raise InputError(
            "--in-place wants a clean git tree",
            where=str(root),
            hint="commit or stash your changes first",
            code="tree-not-clean",
        )
    for file in job.files:
        known = subprocess.run(
            ["git", "-C", str(root), "ls-files", "--error-unmatch", file.path], capture_output=True, text=True
        )
        if file.sha256_before is not None and known.returncode != 0:
            raise InputError(
                "--in-place changes only files git knows",
                where=file.path,
                hint="git add it first",
                code="tree-not-clean",
            )


def _surfaces(job: PatchedJob) -> list[Surface]:
    found: list[Surface] = []
    if [w for w in job.command if w not in job.original_command and not w.startswith(job.tree)]:
        found.append("flag")
    kinds: dict[str, Surface] = {"config": "config", "source": "call-site", "shim": "shim"}
    found += [surface for kind, surface in kinds.items() if any(f.kind == kind for f in job.files)]
    if any(name != "PYTHONPATH" for name in job.env):
        found.append("env-var")
    if job.packages:
        found.append("package")
    return found


def _by_hand(job: PatchedJob, mode: Mode, files: Sequence[ManifestFile]) -> list[str]:
    steps = []
    if mode == "patch" and files:
        steps.append(f"git apply {shlex.quote(files[0].path)}   (from {project_root(job)})")
    if job.packages:
        pins = " ".join(f"{p.name}=={p.version}" for p in job.packages)
        steps.append(f"to keep the packages outside the run folder: python -m pip install --no-deps {pins}")
    return steps


def _file_diff(file: EditedFile, root: Path, raw: bool) -> str:
    before = "" if file.sha256_before is None else _text_of(Path(file.path), raw)
    after = _text_of(Path(file.shadow), raw)
    name = Path(os.path.relpath(file.path, root)).as_posix()
    old = "/dev/null" if file.sha256_before is None else f"a/{name}"
    head = f"diff --git a/{name} b/{name}\n"
    if file.sha256_before is None:
        head += "new file mode 100644\n"
    lines = []
    for line in difflib.unified_diff(_lines(before), _lines(after), old, f"b/{name}"):
        lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return head + "".join(lines)


def _text_of(path: Path, raw: bool) -> str:
    """Readable text; `raw` keeps every byte of a file in another encoding, for `git apply`."""
    data = path.read_bytes()
    return data.decode("utf-8", "surrogateescape") if raw else decode(data, str(path))


def _lines(text: str) -> list[str]:
    """Lines with their own ends; only line feeds separate, as for git."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
