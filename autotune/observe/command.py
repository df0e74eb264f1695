"""Reads a job's command line: which launcher, which script, which arguments belong to whom.

The words are only read, never run. What cannot be known from them stays None.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import InputError
from autotune.observe.launchers import (
    CONFIG_SUFFIXES,
    ELSEWHERE,
    LAUNCHER_MODULES,
    LAUNCHERS,
    PYTHON_VALUE_FLAGS,
    SHELLS,
    WRAPPERS,
    Launcher,
)
from autotune.observe.programs import ASSIGNMENT, absolute, first_line, which
from autotune.records.command import CommandFile, JobCommand

STANDARD_INPUT = "standard input"
_PYTHON = re.compile(r"^(python|pypy)(\d+(\.\d+)*)?t?w?(\.exe)?$")
_LAUNCHER_LINE = re.compile(
    r"(^|[\s;&|/])(python[\d.]*|torchrun|accelerate|deepspeed|trl|srun|mpirun|uv)(\s|$)"
)


def read_command(argv: tuple[str, ...] | list[str], cwd: Path, path: str | None = None) -> JobCommand:
    """Read one command line. `path` is the PATH programs are looked up in. Raises InputError when empty."""
    words = list(argv)
    if not words:
        raise InputError(
            "there is no command to run",
            hint="put it after --, e.g. -- python train.py",
            code="command-missing",
        )
    reader = _Reader(words, cwd, path)
    reader.program(0)
    return JobCommand(argv=words, cwd=str(cwd), **reader.found)


@dataclass
class _Reader:
    words: list[str]
    cwd: Path
    path: str | None
    found: dict[str, Any] = field(default_factory=dict)
    wrappers: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)

    def program(self, at: int) -> None:
        """Read the program at word `at` and all that follows."""
        at = self.assignments(at)
        self.found.update(wrappers=self.wrappers, obstacles=self.obstacles)
        if at >= len(self.words):
            self.found.update(launcher="other", launcher_index=max(0, len(self.words) - 1))
            return
        word = self.words[at]
        name = Path(word).name
        self.found.update(launcher_index=at, launcher_path=which(word, self.cwd, self.path))
        if name in ELSEWHERE:
            self.obstacles.append(f"{name}: {ELSEWHERE[name]}")
            self.found.update(launcher="other")
        elif name == "env":
            self.env(at)
        elif name in WRAPPERS and self.wrapped(at, name):
            return
        elif _PYTHON.match(name):
            self.python(at)
        elif name in ("accelerate", "accelerate-launch"):
            launch = name != "accelerate" or self.word(at + 1) == "launch"
            self.shebang(at)
            if launch:
                self.launcher("accelerate", at + (2 if name == "accelerate" else 1))
            else:
                self.console(at)
        elif name in ("torchrun", "deepspeed"):
            self.shebang(at)
            self.launcher(name, at + 1)
        elif name == "trl":
            self.shebang(at)
            self.found.update(launcher="trl")
            self.arguments(at + 1)
        elif name in SHELLS:
            self.shell(at)
        else:
            self.file(at)

    def word(self, at: int) -> str | None:
        return self.words[at] if at < len(self.words) else None

    def assignments(self, at: int) -> int:
        while at < len(self.words) and ASSIGNMENT.match(self.words[at]):
            if self.words[at].startswith("PYTHONPATH="):
                self.clean("the command sets PYTHONPATH itself")
            at += 1
        return at

    def clean(self, why: str) -> None:
        self.obstacles.append(f"environment: {why}")

    def env(self, at: int) -> None:
        self.wrappers.append("env")
        at += 1
        while (word := self.word(at)) is not None and word.startswith("-"):
            if word in ("-i", "-", "--ignore-environment"):
                self.clean("env -i empties the environment")
            if word in ("-u", "--unset", "-C", "--chdir"):
                if self.word(at + 1) == "PYTHONPATH":
                    self.clean("env -u PYTHONPATH takes the variable away")
                at += 1
            if word in ("-S", "--split-string") or word.startswith(("-S", "--split-string=")):
                break
            at += 1
        self.program(at)

    def wrapped(self, at: int, name: str) -> bool:
        """Go on behind a wrapper; False when it is used for something else."""
        wrapper = WRAPPERS[name]
        at += 1
        if wrapper.subcommands:
            at = self.skip_options(at, wrapper.value_options)
            if self.word(at) not in wrapper.subcommands:
                return False
            at += 1
        start = at
        at = self.skip_options(at, wrapper.value_options, program=not wrapper.operands) + wrapper.operands
        if self.word(at) == "--":
            at += 1
        options = self.words[start:at]
        if wrapper.cleans_environment:
            self.clean(wrapper.cleans_environment)
        for option in options:
            if option in wrapper.cleaning_options:
                self.clean(f"{name} {option} empties the environment")
        if name == "srun" and any(
            o in ("--export=NONE", "--export=NIL") or (o == "--export" and n in ("NONE", "NIL"))
            for o, n in zip(options, [*options[1:], ""], strict=True)
        ):
            self.clean("srun --export=NONE empties the environment")
        if self.word(at) is None:
            return False
        self.wrappers.append(name)
        word = self.words[at]
        if name == "uv" and word in ("-m", "--module"):
            self.found.update(launcher="python", launcher_index=at, module=self.word(at + 1))
            self.found.update(module_index=at + 1)
            self.arguments(at + 2)
        elif name == "uv" and word.endswith(".py") and (self.cwd / word).is_file():
            self.script(at)
            self.found.update(launcher="python", launcher_index=at, launcher_path=str(self.cwd / word))
        else:
            self.program(at)
        return True

    def skip_options(self, at: int, value_options: frozenset[str], program: bool = False) -> int:
        while (word := self.word(at)) is not None and word.startswith("-") and word != "--":
            if word in ("-m", "--module") and word not in value_options:
                break
            takes_value = word in value_options
            following = self.word(at + 1)
            if (
                not takes_value
                and program
                and "=" not in word
                and following
                and not following.startswith("-")
            ):
                # An option nobody listed: its next word is a value if no program of that name exists.
                takes_value = which(following, self.cwd, self.path) is None and not (
                    following.endswith(".py") or ASSIGNMENT.match(following)
                )
            at += 2 if takes_value else 1
        return at

    def python(self, at: int) -> None:
        self.found.update(launcher="python", interpreter=self.found["launcher_path"])
        at += 1
        flags: list[str] = []
        self.found.update(interpreter_flags=flags)
        while (word := self.word(at)) is not None and word.startswith("-") and word != "-":
            if word.startswith("--"):
                flags.append(word)
                at += 2 if word in PYTHON_VALUE_FLAGS else 1
                continue
            letters = word[1:]
            stop = next((n for n, letter in enumerate(letters) if letter in "cmWX"), len(letters))
            for letter in letters[:stop]:
                if letter in "IES":
                    self.obstacles.append(f"interpreter: python -{letter} ignores the injected folder")
                flags.append(f"-{letter}")
            if stop == len(letters):
                at += 1
                continue
            value_at = at if stop + 1 < len(letters) else at + 1
            value = letters[stop + 1 :] if value_at == at else self.word(at + 1)
            if letters[stop] in "WX":
                flags.append(f"-{letters[stop]}{value or ''}")
                at = value_at + 1
                continue
            if letters[stop] == "c":
                self.arguments(value_at + 1)
            elif value in LAUNCHER_MODULES:
                self.launcher(LAUNCHER_MODULES[value], value_at + 1)
            else:
                self.found.update(module=value, module_index=value_at)
                self.arguments(value_at + 1)
            return
        if word is not None and word != "-":
            self.script(at)
        elif not {"-V", "-h", "-?", "--version", "--help"} & set(flags):
            self.obstacles.append(
                f"{STANDARD_INPUT}: Python reads the program from it, which every start needs anew;"
                " put it into a file"
            )

    def launcher(self, name: str, at: int) -> None:
        """torchrun, accelerate launch, deepspeed: options, then the script or module."""
        known: Launcher = LAUNCHERS[name]
        self.found.update(launcher=name)
        module = no_python = False
        while (word := self.word(at)) is not None and word.startswith("-"):
            key, has_value, value = word.partition("=")
            if word == "--":
                at += 1
                break
            if key in known.module_options or key in known.no_python_options:
                module |= key in known.module_options
                no_python |= key in known.no_python_options
                at += 1
                continue
            following = self.word(at + 1)
            takes = not has_value and key not in known.bare_options and self._is_value(following)
            value = (following or "") if takes else value
            self.launcher_option(known, key, value, at + 1 if takes else at)
            at += 2 if takes else 1
        if word is None or at >= len(self.words):
            return
        if module:
            self.found.update(module=self.words[at], module_index=at)
            self.arguments(at + 1)
        elif no_python:
            self.program_after_launcher(at)
        else:
            self.script(at)

    def program_after_launcher(self, at: int) -> None:
        outer = {k: self.found.get(k) for k in ("launcher", "launcher_index", "launcher_path")}
        self.program(at)
        self.found.update({k: v for k, v in outer.items() if v is not None})

    def launcher_option(self, known: Launcher, key: str, value: str, at: int) -> None:
        if key in known.process_options and value.isdigit():
            self.found.update(processes_per_node=int(value))
        if key in known.node_options and value.isdigit():
            self.found.update(nodes=int(value))
        if key in known.config_options:
            self.config(value, at, key, "launcher")

    def _is_value(self, word: str | None) -> bool:
        """Whether the word after an option nobody listed as bare is its value."""
        return (
            word is not None
            and not word.startswith("-")
            and not (word.endswith(".py") and (self.cwd / word).is_file())
        )

    def script(self, at: int) -> None:
        self.found.update(script=str(absolute(self.words[at], self.cwd)), script_index=at)
        self.arguments(at + 1)

    def arguments(self, at: int) -> None:
        """The script's own arguments, and the configuration files among them."""
        rest = self.words[at:]
        self.found.update(args_index=at, script_args=rest)
        named: dict[str, str] = {}
        flag: str | None = None
        for n, word in enumerate(rest):
            key, has_value, value = word.partition("=")
            if word.startswith("-") and not has_value:
                flag = word
                continue
            owner_flag = key if has_value and key.startswith("-") else flag
            text = value if has_value and key.startswith("-") else word
            if owner_flag:
                named[owner_flag.lstrip("-").replace("_", "-")] = text
            self.config(text, at + n, owner_flag, "script")
            flag = None
        if "config-name" in named:  # Hydra names its file without folder or suffix
            base = self.found.get("script") or str(self.cwd / "x")
            folder = Path(base).parent / named.get("config-path", ".")
            at_word = next(n for n, w in enumerate(rest) if w.replace("_", "-").startswith("--config-name"))
            for suffix in ("", ".yaml", ".yml"):
                self.config(
                    str(folder / (named["config-name"] + suffix)), at + at_word, "--config-name", "script"
                )

    def config(self, text: str, at: int, flag: str | None, owner: str) -> None:
        target = absolute(text, self.cwd)
        if target.suffix.lower() in CONFIG_SUFFIXES and target.is_file():
            files = self.found.setdefault("config_files", [])
            files.append(CommandFile(path=str(target), index=at, flag=flag, owner=owner))  # type: ignore[arg-type]

    def shell(self, at: int) -> None:
        self.found.update(launcher="shell")
        at += 1
        while (word := self.word(at)) is not None and word.startswith("-"):
            if word.startswith("-") and "c" in word[1:] and not word.startswith("--"):
                text = self.word(at + 1) or ""
                self.inner(text, "the -c text")
                self.arguments(at + 2)
                return
            at += 2 if word in ("-o", "-O", "--rcfile", "--init-file") else 1
        if word is not None:
            self.shell_file(at)

    def shell_file(self, at: int) -> None:
        target = absolute(self.words[at], self.cwd)
        self.found.update(launcher="shell", shell_script=str(target))
        self.arguments(at + 1)
        try:
            text = target.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        self.inner(text, target.name)

    def inner(self, text: str, label: str) -> None:
        """The first line of a shell text that starts a launcher: it tells script and config files."""
        logical = re.sub(r"\\\n", " ", text)
        for number, line in enumerate(text.splitlines(), 1):
            hit = re.match(r"\s*(?:export\s+)?PYTHONPATH=(\S*)", line)
            if hit and "PYTHONPATH" not in hit.group(1):
                self.clean(
                    f"line {number} of {label} sets PYTHONPATH without keeping the old value"
                    " (write PYTHONPATH=...:$PYTHONPATH)"
                )
        for line in logical.splitlines():
            if line.lstrip().startswith("#") or not _LAUNCHER_LINE.search(line):
                continue
            try:
                words = shlex.split(line, comments=True)
            except ValueError:
                continue
            start = next((n for n, w in enumerate(words) if _starts_job(w)), None)
            if start is None:
                continue
            job = _Reader(words[start:], self.cwd, self.path)
            job.program(0)
            if not job.found.get("script") and not job.found.get("module"):
                continue
            self.found.update(inner_line=" ".join(words[start:]))
            self.found.update({k: job.found[k] for k in ("script", "module") if k in job.found})
            for key in ("interpreter", "interpreter_flags", "processes_per_node", "nodes"):
                if job.found.get(key) is not None:
                    self.found[key] = job.found[key]
            self.obstacles.extend(o for o in job.obstacles if o not in self.obstacles)
            return

    def shebang(self, at: int) -> None:
        """The interpreter a console script names in its first line."""
        path = self.found["launcher_path"]
        line = first_line(path)
        if line:
            words = line[2:].split()
            if words and Path(words[0]).name == "env":
                target = next((w for w in words[1:] if not w.startswith("-")), "")
                self.found.update(interpreter=which(target, self.cwd, self.path))
            elif words:
                self.found.update(interpreter=words[0])
            self.found.update(interpreter_flags=[w for w in words[1:] if w.startswith("-") and w != "-S"])

    def console(self, at: int) -> None:
        self.found.update(launcher="console-script")
        self.arguments(at + 1)

    def file(self, at: int) -> None:
        """A program found by name: its first line tells what it is."""
        path = self.found["launcher_path"]
        line = first_line(path)
        if line and "python" in line:
            self.shebang(at)
            flags = " ".join(self.found.get("interpreter_flags", []))
            for letter in sorted(set("IES") & set(flags.replace("-", ""))):
                self.obstacles.append(f"interpreter: python -{letter} ignores the injected folder")
            if str(path).endswith(".py"):
                self.found.update(launcher="python")
                self.script(at)
            else:
                self.console(at)
        elif line and any(shell in line for shell in SHELLS):
            self.shell_file(at)
        else:
            self.found.update(launcher="other")
            self.arguments(at + 1)


def _starts_job(word: str) -> bool:
    name = Path(word).name
    return bool(_PYTHON.match(name)) or name in {*LAUNCHERS, *WRAPPERS, "trl", "env"}
