"""Keeps credentials, and the name of this host, out of every file of the launch folder.

What a credential is: the value of an environment variable that is named like one, text in the shape of a
known provider's token, the password of a URL, and what stands behind `token=` or `password:`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys

HIDDEN = "<hidden>"
HOST = "<host>"
_FEWEST = 8  # characters of a secret value: shorter ones are words such as "true"
_SECRET_NAME = re.compile(
    r"(^|[_\-.])(token|secret|password|passwd|pass|api_?key|access_?key|private_?key|credentials?|cookie)s?$"
    r"|secret|password|api_?key",
    re.IGNORECASE,
)
_SHAPES = (
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_\-]{16,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bglpat-[\w\-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bxox[abpr]-[\w\-]{10,}|\beyJ[\w\-]{10,}\.[\w\-]{10,}[\w\-.]*"
    r"|(?<=://)[^/\s:@\"]+:[^/\s@\"]+(?=@)"
)
# the value behind a telling name; a bare number behind a colon is a count in a record
_NAMED = (
    r"((?i:token|password|passwd|secret|api_?key)[\\\"']*\s*(?:=\s*[\\\"']*|:\s*(?:[\\\"']+|(?=[A-Za-z/+]))))"
    r"[^\s\"'\\,}<]{8,}"
)
_HINTS = (
    "token", "passw", "secret", "api_key", "apikey", "hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "glpat-", "akia", "xox", "eyj", "://",
)  # fmt: skip


def secret_name(name: str) -> bool:
    """`HF_TOKEN`, `--wandb-api-key`, `DB_PASSWORD`: what is stored under it is a credential."""
    return _SECRET_NAME.search(name) is not None


def secret_values(environment: dict[str, str]) -> list[str]:
    """Values of the environment that must not be written anywhere, longest first."""
    found = {
        value
        for name, value in environment.items()
        if len(value) >= _FEWEST and secret_name(name) and not _word(value) and not os.path.exists(value)
    }
    return sorted(found, key=len, reverse=True)


def _word(value: str) -> bool:
    """A plain word, such as a field's name in our own records: replacing it would do more harm than good."""
    return len(value) < 16 and value.isalpha() and value[1:].islower()


def argument_values(words: list[str]) -> list[str]:
    """What stands behind an option that is named like a credential."""
    pairs = [word.partition("=")[::2] for word in words if word.startswith("-") and "=" in word]
    pairs += [(word, words[i + 1]) for i, word in enumerate(words[:-1]) if word.startswith("-")]
    return [value for name, value in pairs if secret_name(name) and _looks_secret(value)]


def _looks_secret(value: str) -> bool:
    """Letters and digits in one long word that is no option and no file."""
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return (
        len(value) >= _FEWEST
        and mixed
        and value.isascii()
        and not value.startswith("-")
        and not os.path.exists(value)
    )


def host_names() -> list[str]:
    """Names of this machine that cannot be mistaken for a word."""
    names = {socket.gethostname(), os.uname().nodename if hasattr(os, "uname") else ""}
    names |= {name.split(".")[0] for name in names}
    return sorted((n for n in names if len(n) > 3 and n != "localhost"), key=len, reverse=True)


def _alternatives(words: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(re.escape, words))) if words else None


def _forms(values: list[str]) -> list[str]:
    """Also as they stand inside a JSON string."""
    return sorted({f for v in values for f in (v, json.dumps(v)[1:-1])}, key=len, reverse=True)


_exact = _alternatives(
    _forms(secret_values(dict(os.environ)) + argument_values(list(getattr(sys, "orig_argv", sys.argv))))
)
_hosts = re.compile(rf"(?<![\w.-])(?:{p.pattern})(?![\w-])") if (p := _alternatives(host_names())) else None
_shapes = re.compile(f"{_NAMED}|{_SHAPES}")


def secret_parts(text: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it is a credential by its shape or by the name before it."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return [(text, False)]
    found: list[tuple[str, bool]] = []
    at = 0
    for match in _shapes.finditer(text):
        begin = match.start() + len(match[1] or "")
        found += [(text[at:begin], False), (text[begin : match.end()], True)]
        at = match.end()
    return [*found, (text[at:], False)]


def scrub(text: str) -> str:
    """The text without credentials and without this machine's name; JSON stays JSON."""
    if _exact is not None:
        text = _exact.sub(HIDDEN, text)
    parts = secret_parts(text)
    if len(parts) > 1:
        text = "".join(HIDDEN if secret else part for part, secret in parts)
    return text if _hosts is None else _hosts.sub(HOST, text)


def clean(text: str, length: int = 400) -> str:
    """A short text for a record."""
    return scrub(text)[:length]
