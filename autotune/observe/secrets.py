"""Credentials of a job's command and output, kept out of the run folder.

A credential on the command line is stored as a placeholder, `<hidden:salt:digest>`. The command is started
with the value itself: this process remembers it, and a later one finds it again when it stands in an
environment variable. What a credential is, the probe and we read from one file, `probe/redaction.py`.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from autotune.data import probe_dir
from autotune.errors import JobFailedError

_PLACEHOLDER = re.compile(r"<hidden:([0-9a-f]{8}):([0-9a-f]{8})>")
_NAME = re.compile(r"[\w\-.]+")
_VALUE = re.compile(r"[A-Za-z0-9_\-.~+/=!@#$%^&*]{8,}")
_SPECIAL_TOKENS = re.compile(
    r"(pad|eos|bos|unk|sep|cls|mask|image|video|audio|special|start|end|eot|stop|chat|num|max|min|per)"
    r"[-_]?\w*token", re.IGNORECASE
)  # fmt: skip
_known: dict[str, str] = {}  # placeholder -> value, of this process


def _rules() -> ModuleType:
    """The probe's own rules for this process's environment as it is now."""
    return _load(frozenset(os.environ.items()))


@lru_cache(maxsize=4)
def _load(environment: frozenset[tuple[str, str]]) -> ModuleType:
    """The rules, loaded by path: the probe is a part that nobody imports. They read the environment once."""
    spec = spec_from_file_location("autotune_redaction", probe_dir() / "redaction.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scrub(text: str) -> str:
    """The text without credentials, without values hidden before, and without this machine's name."""
    for placeholder, value in _known.items():
        text = text.replace(value, placeholder)
    return str(_rules().scrub(text))


def hide_command(words: Sequence[str]) -> list[str]:
    """The command as it may be written down."""
    values = _rules().secret_values(dict(os.environ))
    hidden: list[str] = []
    named = False
    for word in words:
        head, equals, value = word.partition("=")
        if named and not word.startswith("-") and _credential(word):
            hidden.append(_hide(word))
        elif equals and _names_secret(head) and _credential(value):
            hidden.append(f"{head}={_hide(value)}")
        elif equals and _NAME.fullmatch(head):
            hidden.append(f"{head}={_inside(value, values)}")
        else:
            hidden.append(_inside(word, values))
        named = word.startswith("-") and not equals and _names_secret(word)
    return hidden


def _names_secret(name: str) -> bool:
    return bool(_rules().secret_name(name.lstrip("-"))) and not _SPECIAL_TOKENS.search(name)


def _credential(value: str) -> bool:
    """Long enough, one word, no number, no path of this machine, not hidden already."""
    return (
        _VALUE.fullmatch(value) is not None
        and not value.replace(".", "").replace("_", "").isdigit()
        and not os.path.exists(value)
    )


def _inside(word: str, values: Iterable[str]) -> str:
    """Credentials anywhere in a word: a URL's password, a token in a shell line, a variable's value."""
    for value in values:
        if value in word:
            word = word.replace(value, _hide(value))
    return "".join(_hide(part) if secret else part for part, secret in _rules().secret_parts(word))


def _hide(value: str) -> str:
    for placeholder, known in _known.items():
        if known == value:
            return placeholder
    salt = secrets.token_hex(4)
    placeholder = f"<hidden:{salt}:{_digest(salt, value)}>"
    _known[placeholder] = value
    return placeholder


def _digest(salt: str, value: str) -> str:
    return hashlib.sha256(f"{salt}{value}".encode()).hexdigest()[:8]


def reveal_command(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command as it is started. Raises JobFailedError when a hidden value is not at hand."""

    def value_of(match: re.Match[str]) -> str:
        if match[0] in _known:
            return _known[match[0]]
        for value in environment.values():
            if _digest(match[1], value) == match[2]:
                return value
        raise JobFailedError(
            "the command holds a credential that was not kept",
            hint="put it into an environment variable of any name and start again",
        )

    return [_PLACEHOLDER.sub(value_of, word) for word in words]
