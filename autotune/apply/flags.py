"""Set or remove a setting on the job's own command line, in the style the command already uses."""

from __future__ import annotations

import re

from autotune.apply.locate import EditRefused
from autotune.records.command import JobCommand

_OVERRIDE = re.compile(r"^[+~]{0,2}[A-Za-z_][\w./@-]*=")  # Hydra, OmegaConf: key=value


def set_flag(argv: list[str], command: JobCommand, name: str, value: str | None) -> list[str]:
    """`argv` with the setting `name` (written as a flag or as a bare key) at `value`; None: a bare flag.

    Raises EditRefused where the script's arguments are not on this command line.
    """
    start = _start(command)
    if not name.startswith("-") or _uses_overrides(argv[start:]):
        return _set_override(argv, start, name.lstrip("-"), value)
    at = _find(argv, start, name)
    if at is None:
        end = argv.index("--", start) if "--" in argv[start:] else len(argv)
        fresh = [_spelling(argv[start:], name)] + ([value] if value is not None else [])
        return [*argv[:end], *fresh, *argv[end:]]
    out = list(argv)
    if "=" in out[at]:
        out[at] = out[at].partition("=")[0] + (f"={value}" if value is not None else "")
    elif _has_value(out, at):
        out[at + 1 : _values_end(out, at)] = [value] if value is not None else []
    elif value is not None:
        out.insert(at + 1, value)
    return out


def remove_flag(argv: list[str], command: JobCommand, name: str) -> list[str]:
    """`argv` without the setting `name`; unchanged when it is not there. Raises EditRefused."""
    start = _start(command)
    bare = name.lstrip("-")
    kept = [w for i, w in enumerate(argv) if i < start or not (_OVERRIDE.match(w) and _key(w) == bare)]
    at = _find(kept, start, name)
    if at is None:
        return kept
    end = at + 1 if "=" in kept[at] else _values_end(kept, at)
    return [*kept[:at], *kept[end:]]


def flag_value(argv: list[str], command: JobCommand, name: str) -> str | None:
    """The value the command line gives `name`; "" for a bare flag, None when it is not there."""
    if command.args_index is None:
        return None
    for word in argv[command.args_index :]:
        if _OVERRIDE.match(word) and _key(word) == name.lstrip("-"):
            return word.partition("=")[2]
    at = _find(argv, command.args_index, name)
    if at is None:
        return None
    if "=" in argv[at]:
        return argv[at].partition("=")[2]
    return argv[at + 1] if _has_value(argv, at) else ""


def _start(command: JobCommand) -> int:
    if command.launcher == "shell":
        raise EditRefused("the script is started by a shell script, whose text is not edited")
    if command.args_index is None:
        raise EditRefused("the command line does not show where the script's arguments are")
    return command.args_index


def _plain(word: str) -> str:
    return word.partition("=")[0].lstrip("-").replace("_", "-").lower()


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _find(argv: list[str], start: int, name: str) -> int | None:
    """The last word that sets `name`, as argparse would take it."""
    found = None
    for i in range(start, len(argv)):
        if argv[i] == "--":
            break
        if argv[i].startswith("-") and _plain(argv[i]) == _plain(name) and not _is_number(argv[i]):
            found = i
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _has_value(argv: list[str], at: int) -> bool:
    following = argv[at + 1] if at + 1 < len(argv) else "-"
    return not following.startswith("-") or _is_number(following)


def _values_end(argv: list[str], at: int) -> int:
    return at + 2 if _has_value(argv, at) else at + 1


def _spelling(arguments: list[str], name: str) -> str:
    """Dashes or underscores, as the command's other long flags have them."""
    longs = [w.partition("=")[0] for w in arguments if w.startswith("--")]
    inner = name.lstrip("-")
    if any("-" in w.lstrip("-") for w in longs) and not any("_" in w for w in longs):
        inner = inner.replace("_", "-")
    return name[: len(name) - len(name.lstrip("-"))] + inner


def _uses_overrides(arguments: list[str]) -> bool:
    """All settings are written key=value and none as --flag."""
    overrides = [w for w in arguments if _OVERRIDE.match(w)]
    return bool(overrides) and not any(w.startswith("--") for w in arguments)


def _set_override(argv: list[str], start: int, key: str, value: str | None) -> list[str]:
    fresh = f"{key}={'true' if value is None else value}"
    out = list(argv)
    for i in range(start, len(out)):
        if _OVERRIDE.match(out[i]) and _key(out[i]) == key:
            out[i] = out[i][: len(out[i]) - len(out[i].lstrip("+~"))] + fresh
            return out
    return [*out, fresh]
