"""Packages for the patched arm: installed into a folder of the run, never into the user's environment.

What is installed: the packages a fix names, and what those need and the environment lacks. What is never
touched: the packages that decide which torch, driver and tokenizer the job runs with.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune.apply.overlay_folder import Clash, take_in
from autotune.errors import FilesError, InputError
from autotune.facts.recipes import DEADLINE_MINUTES, build_variables, built_from_source, pinned
from autotune.observe.processes import end_job
from autotune.observe.supervisor import Supervisor
from autotune.records.plan import InstalledPackage
from autotune.store import write_text

NEVER = re.compile(r"(torch|torchvision|torchaudio|triton|numpy|transformers|tokenizers|nvidia-.*|cuda-.*)$")
_DONE = "overlay.json"  # written last: a folder without it is of an installation that did not end
_LONGEST = 300  # characters of what an interpreter says
Progress = Callable[[str], None]


class PackageFailedError(InputError):
    """One package could not be had; `requirement` is what pip was asked for."""

    code = "package-failed"

    def __init__(self, message: str, requirement: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.requirement = requirement


@dataclass(frozen=True)
class Overlay:
    """An overlay folder and what lies in it."""

    folder: Path
    packages: list[InstalledPackage]


def install(
    packages: Sequence[str],
    *,
    interpreter: str,
    run: Path,
    wheelhouse: Path | None = None,
    deadline_s: float | None = None,
    progress: Progress | None = None,
) -> Overlay:
    """Install into `run/overlay/<set>` with the job's interpreter and check every import there.

    The same set is installed once per run. Raises InputError with pip's own reason, or the import error.
    """
    # A folder of wheels decides the versions itself; from an index the set that was tried together is taken.
    wanted_set = packages if wheelhouse is not None else [pin for p in packages for pin in pinned(p)]
    names = [_checked(p) for p in wanted_set]
    tag = hashlib.sha256("\n".join([interpreter, *sorted(names)]).encode()).hexdigest()[:12]
    folder = run.resolve() / "overlay" / tag
    finished = _finished(folder)
    if finished is not None:
        return finished
    _clear(folder)
    if deadline_s is None:  # hours mean that something is wrong, unless the package is known for them
        builds = [built_from_source(name) for name in names]
        deadline_s = 60.0 * max([DEADLINE_MINUTES, *(b.deadline_minutes for b in builds if b is not None)])
    job = _Interpreter(interpreter, folder, wheelhouse, time.monotonic() + deadline_s, progress or _quiet)
    waiting, done = list(names), set[str]()
    while waiting:
        wanted = waiting.pop(0)
        job.install(wanted)
        done.add(_name(wanted))
        missing = job.missing_requirements()
        waiting += [r for r in missing if _name(r) not in done | {_name(w) for w in waiting}]
    found = job.check_imports()
    write_text(folder / _DONE, json.dumps([p.model_dump() for p in found]))
    return Overlay(folder, found)


def _finished(folder: Path) -> Overlay | None:
    """What an earlier start installed to the end."""
    try:
        saved = json.loads((folder / _DONE).read_text(encoding="utf-8"))
        return Overlay(folder, [InstalledPackage(**p) for p in saved]) if isinstance(saved, list) else None
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


def _clear(folder: Path) -> None:
    """Take away what an installation that was killed left; nobody knows how far it came."""
    try:
        for left in (folder, *folder.parent.glob(f"{folder.name}.part-*")):
            if left.exists():
                shutil.rmtree(left)
        folder.mkdir(parents=True)
    except OSError as fault:
        raise FilesError(fault.strerror or str(fault), where=str(fault.filename or folder)) from fault


def environment_packages(interpreter: str, python_path: Sequence[str] = ()) -> dict[str, str]:
    """Distribution -> version, as a job with this interpreter and these overlay folders sees them."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(python_path)}
    return dict(_ask(interpreter, _LIST, [], env, 120.0, "its packages cannot be listed"))


# Packages print, close stdout or leave without a word: an answer goes past them, on a line that is known.
_MARK = "autotune-answer: "
_ANSWER = f"""
import importlib.metadata as m, json, os, sys
_out = os.dup(1)
def answer(value):
    with open(_out, 'w', encoding='utf-8') as out:
        out.write('\\n{_MARK}' + json.dumps(value) + '\\n')
def name_of(d):
    try:
        return d.metadata['Name'] or ''
    except Exception:
        return ''  # a folder that an uninstallation left
"""

_LIST = """
found = {}
for d in m.distributions():
    if name_of(d) and d.version:
        found.setdefault(name_of(d).lower().replace('_', '-'), d.version)
answer(found)
"""

# Requirements of the overlay's distributions that the job would not find met, overlay first.
_MISSING = """
try:
    from packaging.requirements import Requirement
except ImportError:
    sys.path.append(sys.argv[2])  # where it has no pip either, ours
    from pip._vendor.packaging.requirements import Requirement
    sys.path.pop()
plain = lambda text: text.lower().replace('_', '-').replace('.', '-')
have = {}
for d in m.distributions():
    if name_of(d):
        have.setdefault(plain(name_of(d)), d.version)
def met(specifier, version):
    try:
        return version is not None and specifier.contains(version, prereleases=True)
    except ValueError:
        return False  # a version that is none
out = set()
for d in m.distributions(path=[sys.argv[1]]):
    for text in d.requires or []:
        try:
            r = Requirement(text)
        except ValueError:
            sys.exit(f'{name_of(d)} needs {text!r}')
        if r.marker is not None and not r.marker.evaluate({'extra': ''}):
            continue
        if not met(r.specifier, have.get(plain(r.name))):
            out.add(f'{r.name}{r.specifier}')
answer(sorted(out))
"""

# Top-level modules of every distribution in the overlay, whole and imported.
_IMPORT = """
import importlib
folder = sys.argv[1]
not_library = {'tests', 'test', 'benchmarks', 'examples', 'docs', 'csrc', 'setup'}
def top(file):
    if not file.parts:
        return None
    head = file.parts[0]
    if len(file.parts) == 1:
        return head.split('.')[0] if file.suffix in ('.py', '.so') else None
    return head if os.path.exists(os.path.join(folder, head, '__init__.py')) else None
out = []
for d in m.distributions(path=[folder]):
    code = [f for f in d.files or [] if f.suffix == '.py' and f.parts[0] != '..']
    gone = [str(f) for f in code if not d.locate_file(f).exists()]
    if gone:
        sys.exit(f'{d.metadata["Name"]}: {len(gone)} of its files are not there, the first is {gone[0]}')
    names = {top(f) for f in d.files or []} - not_library - {None}
    names = sorted(n for n in names if n.isidentifier() and not n.startswith('_'))
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as fault:
            reason = (str(fault).splitlines() or [''])[0]
            sys.exit(f'{name}: {type(fault).__name__}: {reason}')
    out.append({'name': d.metadata['Name'].lower().replace('_', '-'), 'version': d.version, 'imports': names})
answer(sorted(out, key=lambda p: p['name']))
"""


@dataclass
class _Interpreter:
    path: str
    folder: Path
    wheelhouse: Path | None
    deadline: float
    progress: Progress

    def install(self, requirement: str) -> None:
        """Put one package into the overlay, without its dependencies."""
        part = self.folder.with_name(f"{self.folder.name}.part-{os.getpid()}")
        command = [*self._pip(), "install", "--target", str(part), "--no-deps"]
        command += [
            "--no-input",
            "--disable-pip-version-check",
            "--no-warn-conflicts",
            "--no-build-isolation",
        ]
        if self.wheelhouse is not None:
            command += ["--no-index", "--find-links", str(self.wheelhouse.resolve())]
        env = {**_pip_env(), **build_variables(requirement)}
        code, lines = self._run([*command, requirement], env, requirement, part)
        if code != 0 or not part.is_dir():
            self._failed(requirement, code, lines)
        try:
            take_in(part, self.folder)
        except Clash as clash:
            raise PackageFailedError(f"{requirement} cannot be installed: {clash}", requirement) from clash
        except OSError as fault:
            raise FilesError(
                fault.strerror or str(fault), where=str(fault.filename or self.folder)
            ) from fault

    def _run(
        self, command: list[str], env: dict[str, str], requirement: str, part: Path
    ) -> tuple[int, list[str]]:
        """pip's exit code and its words. What it builds with ends with it, also when we are killed."""
        started, lines = time.monotonic(), list[str]()
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=env,
            start_new_session=True,
        ) as process:
            watch = Supervisor(process.pid, part, 2.0)
            try:
                self._follow(process, requirement, started, lines)
            finally:
                end_job(process.pid, part, 2.0)
                watch.dismiss()
        return process.returncode, lines

    def _failed(self, requirement: str, code: int, lines: list[str]) -> None:
        """Raises PackageFailedError with pip's own reason, FilesError when there is no room for it."""
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        reason = (
            errors[0].removeprefix("ERROR:").strip() if errors else f"pip installed nothing (exit {code})"
        )
        if reason == "Exception:":  # of pip itself, with its traceback
            told = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Failure|BadZipFile)\b", line)]
            reason = (told or lines)[-1]
        room = re.search(r"\[Errno (\d+)\] ([^:]*)", reason)
        if room and int(room[1]) in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise FilesError(f"{requirement} cannot be installed: {room[2].strip()}", where=str(self.folder))
        hint = "give a folder of wheels with --wheelhouse" if self.wheelhouse is None else None
        raise PackageFailedError(f"{requirement} cannot be installed: {reason[:_LONGEST]}", requirement, hint)

    def _follow(
        self, process: subprocess.Popen[str], requirement: str, started: float, lines: list[str]
    ) -> None:
        import threading

        def read() -> None:
            assert process.stdout is not None
            lines.extend(line.rstrip() for line in process.stdout)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while process.poll() is None:
            elapsed = time.monotonic() - started
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise PackageFailedError(
                    f"{requirement} was not installed within the time limit ({elapsed:.0f} s)",
                    requirement,
                    "build a wheel once and give its folder with --wheelhouse",
                )
            self.progress(f"installing {requirement}: {elapsed:.0f} s, at most {left / 60:.0f} min more")
            time.sleep(0.5)
        reader.join(5)

    def missing_requirements(self) -> list[str]:
        """What the overlay's packages need and lack. Raises InputError when it may not be installed."""
        env = {**_plain_env(), "PYTHONPATH": str(self.folder)}
        fault = "what an installed package needs cannot be read"
        ours = find_spec("pip")
        arguments = [str(self.folder), str(Path(ours.origin).parents[1]) if ours and ours.origin else ""]
        missing = [str(r) for r in _ask(self.path, _MISSING, arguments, env, 120.0, fault)]
        forbidden = [r for r in missing if NEVER.match(_name(r))]
        if forbidden:
            raise InputError(
                f"the environment lacks {', '.join(forbidden)}, which only you can change",
                hint="another version of the package may fit; see autotune doctor",
                code="package-failed",
            )
        return missing

    def check_imports(self) -> list[InstalledPackage]:
        """Import every package of the overlay in a process of its own. Raises InputError with the error."""
        self.progress("checking that the installed packages import")
        env = {**_plain_env(), "PYTHONPATH": str(self.folder)}
        left = max(60.0, self.deadline - time.monotonic())
        fault = "an installed package does not import"
        found = _ask(self.path, _IMPORT, [str(self.folder)], env, left, fault)
        return [InstalledPackage(**p) for p in found]

    def _pip(self) -> list[str]:
        """The job's own pip; where its environment has none, ours working for its interpreter."""
        try:
            probe = subprocess.run(
                [self.path, "-m", "pip", "--version"], capture_output=True, env=_plain_env()
            )
        except OSError as fault:
            raise InputError(
                f"the job's interpreter does not answer: {fault}", where=self.path, code="interpreter-silent"
            ) from fault
        if probe.returncode == 0:
            return [self.path, "-m", "pip"]
        return [sys.executable, "-m", "pip", "--python", self.path]


def _ask(
    interpreter: str, program: str, arguments: list[str], env: dict[str, str], timeout_s: float, fault: str
) -> Any:
    """What a program answers; `fault` is what its failure means."""
    try:
        done = subprocess.run(
            [interpreter, "-c", _ANSWER + program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=env,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired) as silent:
        raise InputError(
            f"the job's interpreter does not answer: {silent}", where=interpreter, code="interpreter-silent"
        ) from silent
    answers = [line for line in done.stdout.split("\n") if line.startswith(_MARK)]
    if done.returncode == 0 and answers:
        return json.loads(answers[-1].removeprefix(_MARK))
    said = done.stderr.strip().splitlines()[-1:] if done.returncode else ["it left without an answer"]
    reason = (said or [f"exit {done.returncode}"])[0][:_LONGEST]
    raise InputError(f"{fault}: {reason}", where=interpreter, code="package-failed")


def _checked(requirement: str) -> str:
    if NEVER.match(_name(requirement)):
        raise InputError(
            f"{requirement} is never installed: it decides what the job itself runs with",
            code="package-refused",
        )
    return requirement


def _name(requirement: str) -> str:
    return re.split(r"[\s<>=!~;\[(@]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")


def _plain_env() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def _pip_env() -> dict[str, str]:
    """Where pip installs is said here, whatever the user's variables and pip.conf say of it."""
    elsewhere = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_HOME")
    plain = {k: v for k, v in _plain_env().items() if k not in elsewhere}
    return plain | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_DRY_RUN": "0"}


def _quiet(line: str) -> None:
    """No progress shown."""
