"""The job as it can be edited: its command, its recorded sites, its texts (with what is kept so far)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from autotune.apply.locate import EditRefused
from autotune.apply.shadow import original_of
from autotune.apply.source_text import decode
from autotune.observe.command import read_command
from autotune.records.command import JobCommand
from autotune.records.observation import Observation
from autotune.records.plan import PatchedJob
from autotune.records.sites import Site


@dataclass
class Target:
    """What edits start from. Paths are the user's own, also where the observation saw a shadow tree."""

    observation: Observation
    command: JobCommand
    cwd: Path
    sites: list[Site]
    interpreter: str
    base: PatchedJob | None = None
    _texts: dict[Path, str] = field(default_factory=dict)

    @property
    def script(self) -> Path | None:
        """The script the command starts, resolved as Python does for its import path."""
        if self.command.script is None:
            return None
        path = Path(os.path.normpath(self.command.script))
        return path.resolve() if path.is_symlink() else path

    @property
    def shell_script(self) -> Path | None:
        """The shell script the command starts."""
        written = self.command.shell_script
        return Path(os.path.normpath(written)) if written is not None else None

    @property
    def import_root(self) -> Path:
        """The folder the job's own imports start from."""
        return self.script.parent if self.script is not None else self.cwd

    def text(self, path: Path) -> str:
        """Current text of a file of the job. Raises EditRefused when it cannot be read."""
        if path not in self._texts:
            self._texts[path] = decode(self.content(path), str(path))
        return self._texts[path]

    def content(self, path: Path) -> bytes:
        """Current bytes of a file of the job. Raises EditRefused when it cannot be read."""
        source = path
        for file in self.base.files if self.base else []:
            if file.path == str(path):
                source = Path(file.shadow)
        try:
            return source.read_bytes()
        except OSError as fault:
            raise EditRefused(f"{path} cannot be read: {fault.strerror}") from None


def target_of(observation: Observation, base: PatchedJob | None = None) -> Target:
    """The target of an observed job; `base` is what the observed job already had changed."""
    argv = base.command if base else observation.command
    original_argv = base.original_command if base else observation.command
    cwd = Path(base.original_cwd if base else observation.cwd)
    current = _with_original_paths(argv, original_argv, base)
    command = read_command(current, cwd)
    sites = [_mapped(site, base) for site in observation.sites]
    interpreter = next(
        (r.environment.interpreter for r in observation.ranks if r.environment.interpreter), ""
    )
    return Target(observation, command, cwd, sites, interpreter or command.interpreter or "", base)


def _with_original_paths(argv: list[str], original: list[str], base: PatchedJob | None) -> list[str]:
    """The base's command with its kept flags, in terms of the user's own paths."""
    if base is None:
        return list(original)
    tree = Path(base.tree)
    out = []
    for word in argv:
        path = original_of(tree, Path(word)) if word.startswith(str(tree)) else None
        out.append(str(path) if path is not None else word)
    return out


def _mapped(site: Site, base: PatchedJob | None) -> Site:
    if base is None:
        return site
    path = original_of(Path(base.tree), Path(site.file))
    return site if path is None else site.model_copy(update={"file": str(path)})
