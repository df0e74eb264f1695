"""Programs the job starts: file tools work on the sandbox, uploads and repository changes are left out.

rm, mv, cp, mkdir, touch and rmdir are carried out here, through the guarded functions; other tools that would
change a kept file are refused. Programs that only read get the changed version of a path that has one.
"""

from __future__ import annotations

import errno
import functools
import os
import shlex
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import finder
from .guard_files import Files

_CARRIED_OUT = {"rm", "rmdir", "mkdir", "touch", "cp", "mv"}
_WRITERS = {"ln", "tee", "dd", "truncate", "shred", "install", "rsync", "tar", "zip", "unzip", "sed", "split"}
_ATTRIBUTES = {"chmod", "chown", "chgrp", "setfacl"}
_GIT_READS = {
    "rev-parse", "status", "diff", "log", "describe", "show", "ls-files", "ls-remote", "ls-tree", "config",
    "branch", "remote", "cat-file", "rev-list", "merge-base", "blame", "grep", "version", "symbolic-ref",
    "name-rev", "shortlog", "--version", "lfs",
}  # fmt: skip
_UPLOADERS: dict[str, set[str]] = {
    "aws": {"cp", "mv", "sync", "rm", "mb", "rb"},
    "gsutil": {"cp", "mv", "rsync", "rm", "mb", "rb"},
    "gcloud": {"cp", "mv", "rsync", "rm"},
    "rclone": {"copy", "copyto", "sync", "move", "moveto", "delete", "purge", "deletefile", "rcat"},
    "s5cmd": {"cp", "mv", "sync", "rm"},
    "azcopy": {"copy", "sync", "remove"},
    "hf": {"upload", "upload-large-folder", "repo", "repos"},
    "huggingface-cli": {"upload", "upload-large-folder", "repo", "tag"},
    "scp": set(),
    "rsync": set(),
}
_REMOVES = {
    "rm", "rb", "mb", "delete", "purge", "deletefile", "remove", "upload", "upload-large-folder", "repo",
    "repos", "tag",
}  # fmt: skip
_POPEN_CWD, _POPEN_ENV, _POPEN_SHELL = 9, 10, 8


def install(files: Files) -> None:
    """Wrap the ways to start a program."""
    commands = _Commands(files)
    real_system = os.system

    @functools.wraps(real_system)
    def system(command: Any) -> int:
        return real_system(commands.rewrite_line(command))

    os.system = system
    finder.when_imported("subprocess", commands.wrap_popen)


class _Commands:
    def __init__(self, files: Files) -> None:
        self.files = files

    def wrap_popen(self, module: ModuleType) -> None:
        popen = module.Popen
        original = popen.__init__

        @functools.wraps(original)
        def __init__(popen_self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
            values = list(rest)

            def given(name: str, at: int) -> Any:
                return kwargs.get(name, values[at - 1] if len(values) >= at else None)

            def put(name: str, at: int, value: Any) -> None:
                if len(values) >= at:
                    values[at - 1] = value
                else:
                    kwargs[name] = value

            cwd = given("cwd", _POPEN_CWD)
            # The real functions of our own process resolve words against the child's folder.
            base = os.getcwd() if cwd is None else os.path.join(os.getcwd(), os.fsdecode(cwd))
            if isinstance(args, (str, bytes)):
                args = self.rewrite_line(args, base) if given("shell", _POPEN_SHELL) else args
            elif not hasattr(args, "__fspath__"):
                words = list(args)
                if given("shell", _POPEN_SHELL) and words and isinstance(words[0], str):
                    args = [self.rewrite_line(words[0], base), *words[1:]]
                else:
                    args = self.rewrite_words(words, base)
                    if _name(words) == "git":
                        env = dict(given("env", _POPEN_ENV) or os.environ)
                        env.setdefault("GIT_OPTIONAL_LOCKS", "0")  # `git status` would rewrite the index
                        put("env", _POPEN_ENV, env)
            place = None if cwd is None else self.files.read_path(cwd)
            if place is not None:
                put("cwd", _POPEN_CWD, place)
            original(popen_self, args, *values, **kwargs)

        popen.__init__ = __init__

    def rewrite_line(self, line: Any, base: str | None = None) -> Any:
        """A shell line: whole if nothing in it changes files, `true` when it was carried out here."""
        if not isinstance(line, (str, bytes)):
            return line
        text = os.fsdecode(line)
        try:
            lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            tokens = list(lexer)
        except ValueError:
            return line
        commands: list[list[str]] = [[]]
        operators: set[str] = set()
        for token in tokens:
            if token and all(letter in "();<>|&" for letter in token):
                operators.add(token)
                if token in (">", ">>", "&>", ">|"):
                    commands[-1].append(token)
                else:
                    commands.append([])
            else:
                commands[-1].append(token)
        commands = [c for c in commands if c]
        base = base or os.getcwd()
        if not any(self.changes(_plain_words(c), base) or self._redirects(c, base) for c in commands):
            return line
        simple = operators <= {";", "&&"} and not any(
            ">" in c or "$" in w or "`" in w for c in commands for w in c
        )
        if not simple:
            self._refuse(text, text)
        done = True
        for words in commands:
            words = self._expanded(words, base)
            if words and words[0] == "cd":
                self._refuse(text, text)
            result = self.rewrite_words(words, base)
            if result == words and not self.changes(words, base):
                self._refuse(text, text)  # a mixture of file tools and programs
            done = done and result != ["false"]
        return "true" if done else "false"

    def _expanded(self, words: list[str], base: str) -> list[str]:
        from glob import glob

        found = [words[0]]
        for word in words[1:]:
            word = os.path.expanduser(word)
            hits = sorted(glob(os.path.join(base, word))) if any(c in word for c in "*?[") else []
            found += hits or [word]
        return found

    def _redirects(self, words: list[str], base: str) -> bool:
        return any(
            words[n] in (">", ">>", "&>", ">|") and n + 1 < len(words) and self._kept(words[n + 1], base)
            for n in range(len(words))
        )

    def changes(self, words: list[Any], base: str) -> bool:
        """Whether the program would change something kept or remote."""
        name, rest = _name(words), [w for w in words[1:] if isinstance(w, str)]
        operands = [w for w in rest if not w.startswith("-")]
        if name == "git":
            verb = _git_verb(rest)
            return bool(verb) and verb not in _GIT_READS
        if name in _UPLOADERS and _uploads(name, operands):
            return True
        if name == "sed" and not any(w.startswith(("-i", "--in-place")) for w in rest):
            return False
        if name == "tar" and not (set("".join(rest[:1]).lstrip("-")) & set("cxru") or "--extract" in rest):
            return False
        if name in _CARRIED_OUT | _WRITERS | _ATTRIBUTES:
            targets = operands[-1:] if name in ("cp", "rsync", "ln", "install") else operands
            if name == "dd":
                targets = [w[3:] for w in rest if w.startswith("of=")]
            if name in ("tar", "unzip") and not any(self._kept(t, base) for t in targets):
                targets = [base]
            return any(self._kept(t, base) for t in targets)
        return False

    def rewrite_words(self, words: list[Any], base: str) -> list[Any]:
        """The command to start instead; `true` or `false` when its work was done or left out here."""
        if not words or not all(isinstance(w, (str, bytes)) or hasattr(w, "__fspath__") for w in words):
            return words
        plain = [os.fsdecode(w) for w in words]
        if self.changes(plain, base):
            name = _name(plain)
            label = shlex.join(plain)[:200]
            if name in _UPLOADERS or name == "git" or name in _ATTRIBUTES:
                self.files.report("suppressed", name, label)
                return ["true"]
            if name in _CARRIED_OUT:
                return ["true"] if self._carry_out(name, plain[1:], base) else ["false"]
            self._refuse(name, label)
        if _name(plain).startswith("python"):
            return words  # guarded by itself
        return [self._seen(w, p, base) for w, p in zip(words, plain)]  # noqa: B905

    def _seen(self, word: Any, text: str, base: str) -> Any:
        if "/" not in text or text.startswith("-"):
            return word
        place = self.files.read_path(os.path.join(base, text))
        return word if place is None or not os.path.lexists(place) else place

    def _kept(self, text: str, base: str) -> bool:
        return (
            self.files.kept(os.path.join(base, os.path.expanduser(text)), "command", None, False) is not None
        )

    def _refuse(self, call: str, label: str) -> None:
        self.files.report("refused", call[:40], label[:200])
        raise PermissionError(
            errno.EACCES, "autotune refused a program that would change your files; see --allow-write", label
        )

    def _carry_out(self, name: str, words: list[str], base: str) -> bool:
        """The file tools, through the guarded functions."""
        import shutil

        flags = {letter for w in words if w.startswith("-") and not w.startswith("--") for letter in w[1:]}
        flags |= {w.lstrip("-") for w in words if w.startswith("--")}
        paths = [os.path.join(base, os.path.expanduser(w)) for w in words if not w.startswith("-")]
        recursive = bool(flags & {"r", "R", "a", "recursive", "archive"})
        actions: dict[str, Callable[[str], None]] = {
            "rmdir": os.rmdir,
            "touch": lambda p: open(p, "ab").close(),
            "mkdir": lambda p: os.makedirs(p, exist_ok=True) if flags & {"p", "parents"} else os.mkdir(p),
        }
        try:
            if name in actions:
                for path in paths:
                    actions[name](path)
            elif name == "rm":
                for path in paths:
                    if os.path.isdir(path) and not os.path.islink(path):
                        if not recursive:
                            return False
                        shutil.rmtree(path)
                    elif os.path.lexists(path) or not flags & {"f", "force"}:
                        os.remove(path)
            else:
                *sources, target = paths
                for source in sources:
                    inside = os.path.join(target, os.path.basename(source.rstrip("/")))
                    place = inside if os.path.isdir(target) else target
                    if name == "mv":
                        shutil.move(source, place)
                    elif os.path.isdir(source):
                        if not recursive:
                            return False
                        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
                    else:
                        shutil.copy2(source, place)
        except (OSError, ValueError):
            return False
        return True


def _name(words: list[Any]) -> str:
    return os.path.basename(os.fsdecode(words[0])) if words else ""


def _plain_words(words: list[str]) -> list[str]:
    """Leading NAME=VALUE words are not the program."""
    at = 0
    while at < len(words) and "=" in words[at] and words[at].split("=", 1)[0].isidentifier():
        at += 1
    return words[at:]


def _git_verb(rest: list[str]) -> str:
    skip = False
    for word in rest:
        if skip:
            skip = False
        elif word in ("-C", "-c", "--git-dir", "--work-tree"):
            skip = True
        elif not word.startswith("-"):
            return word
    return ""


def _uploads(name: str, operands: list[str]) -> bool:
    """Whether a transfer program writes to or removes from the far side."""
    verbs = _UPLOADERS[name]
    verb = next((w for w in operands[:3] if w in verbs), "")
    if verbs and not verb:
        return False
    if verb in _REMOVES:
        return True
    far = operands[-1] if operands else ""
    return "://" in far or (name in ("scp", "rsync", "rclone") and ":" in far and not far.startswith("/"))
