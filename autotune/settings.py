"""The configuration file: `autotune.toml`, or `[tool.autotune]` in `pyproject.toml`, of the nearest folder.

A flag on the command line wins over the file, the file over the built-in default. There are no environment
variables. Paths in the file are relative to the file. Unknown keys are refused with their line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from autotune.errors import InputError, Place, SeveralFaults
from autotune.records.terms import LARGEST_NUMBER, SEVERITIES

Kind = Literal["count", "number", "text", "switch", "path", "paths", "texts", "severity"]

_WANTED: dict[Kind, str] = {
    "count": "a whole number above zero",
    "number": "a number, zero or more",
    "text": "a text",
    "switch": "true or false",
    "path": "a path",
    "paths": "a list of paths",
    "texts": "a list of texts",
    "severity": f"one of {', '.join(SEVERITIES)}",
}


@dataclass(frozen=True)
class Key:
    """One key: it sets the option `--<key>` of every verb that has it."""

    kind: Kind
    parameter: str  # the verbs' name for the option
    means: str


KEYS: dict[str, Key] = {
    "runs-dir": Key("path", "runs_dir", "Folder that holds the runs."),
    "rules": Key("paths", "rule_dirs", "Folders of your own rules; a rule of a built-in id replaces it."),
    "disable": Key("texts", "disable", "Rules to leave out, by id or a pattern such as 'debug/*'."),
    "allow-write": Key("paths", "allow_write", "Places where observed runs may write."),
    "steps": Key("count", "steps", "Unprofiled steps to time."),
    "first-step-timeout": Key("number", "first_step_timeout", "Seconds to wait for the first step."),
    "profile-ranks": Key("text", "profile_ranks", "Ranks to profile, comma separated."),
    "fail-on": Key("severity", "fail_on", "Exit code 1 when a finding is this severe or worse."),
    "select": Key("texts", "select", "Only these rules or categories are applied."),
    "exclude": Key("texts", "exclude", "These rules or categories are not applied."),
    "unsafe": Key("switch", "unsafe", "Also changes that a person should review."),
    "wheelhouse": Key("path", "wheelhouse", "Folder of wheels to install packages from."),
    "min-pairs": Key("count", "min_pairs", "Pairs of runs at least."),
    "max-pairs": Key("count", "max_pairs", "Pairs of runs at most."),
    "max-minutes": Key("number", "max_minutes", "Minutes at most."),
    "max-trials": Key("count", "max_trials", "Trials at most."),
    "min-gain": Key("number", "min_gain", "Percent a change must bring to be kept."),
    "memory-limit": Key("number", "memory_limit", "GiB a rank may use in the memory plan."),
    "price-per-gpu-hour": Key("number", "price_per_gpu_hour", "What one GPU costs an hour, for the report."),
}
VERB_TABLES = ("analyze", "apply", "optimize", "report", "verify")
_SEVERITY_TABLE = "severity"
_LARGEST = 1_000_000  # bytes


@dataclass(frozen=True)
class Value:
    """One value that the file sets."""

    value: Any
    place: Place


@dataclass(frozen=True)
class SettingFault:
    """One thing that is wrong, and what it concerns: a key, a verb's table, or (both empty) the file."""

    fault: InputError
    key: str = ""
    table: str = ""

    def concerns(self, verb: str, keys: Collection[str]) -> bool:
        """Whether a verb with these keys as options would do something else than the file asks for."""
        if self.table in VERB_TABLES:
            return self.table == verb
        if self.table == _SEVERITY_TABLE:
            return "disable" in keys
        return self.key in keys if self.key in KEYS else verb in VERB_TABLES or not self.key


@dataclass(frozen=True)
class Settings:
    """What the file says; empty when there is none."""

    file: Path | None = None
    values: Mapping[str, Value] = field(default_factory=dict)  # "steps", or "verify.steps" for one verb
    severity: Mapping[str, Value] = field(default_factory=dict)  # rule id -> severity it is reported with
    faults: tuple[SettingFault, ...] = ()  # what the file says wrongly; its other values hold

    def for_verb(self, verb: str) -> dict[str, Any]:
        """Values by parameter name; those of the verb's own table win."""
        chosen = {k: v.value for k, v in self.values.items() if "." not in k}
        own = {k.partition(".")[2]: v.value for k, v in self.values.items() if k.startswith(f"{verb}.")}
        return {KEYS[key].parameter: value for key, value in {**chosen, **own}.items()}


def load_settings(start: Path) -> Settings:
    """The configuration that holds in a folder. Raises InputError with the line of all that is wrong."""
    settings = read_settings(start)
    refuse(settings.faults)
    return settings


def refuse(faults: Sequence[SettingFault]) -> None:
    """Raises InputError that tells all faults."""
    if faults:
        raise SeveralFaults([entry.fault for entry in faults], "errors in the configuration file")


def read_settings(start: Path) -> Settings:
    """As `load_settings`, with what is wrong returned beside the values that are right."""
    try:
        for folder in (start, *start.parents):
            own, project = folder / "autotune.toml", folder / "pyproject.toml"
            if is_there(own):
                return _read(own, _parse(own, _text(own)), prefix="")
            if is_there(project) and _may_speak_of_us(text := _text(project)):
                tool = _parse(project, text).get("tool")
                table = tool.get("autotune") if isinstance(tool, dict) else None
                if table is not None:
                    return _read(project, table, prefix="tool.autotune")
    except InputError as fault:
        return Settings(faults=(SettingFault(fault),))
    return Settings()


def is_there(path: Path) -> bool:
    """Also a link that leads nowhere: the user meant it to be read. A folder of this name is none."""
    return os.path.lexists(path) and not os.path.isdir(path)


def _may_speak_of_us(text: str) -> bool:
    """Only then is a whole pyproject.toml parsed, and its faults told."""
    return re.search(r"\btool\b", text) is not None and re.search(r"\bautotune\b", text) is not None


def _text(path: Path) -> str:
    if not os.path.isfile(path):
        raise InputError("this is no file that can be read", where=str(path), code="config-broken")
    size = os.path.getsize(path)
    if size > _LARGEST:
        what = f"{size:,} bytes are too many for a configuration file (at most {_LARGEST:,})"
        raise InputError(what, where=str(path), code="config-broken")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as fault:
        raise InputError(
            "not UTF-8 text", where=Place(str(path), byte_offset=fault.start), code="config-broken"
        ) from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError

    try:
        return tomlkit.parse(text).unwrap()
    except ParseError as fault:
        what = str(fault).partition(" at line")[0].rstrip(".")
        if "'\\x00'" in what and "\0" not in text:
            what = "the file ends before the value does"
        raise InputError(
            f"not valid TOML: {what}",
            where=Place(str(path), fault.line, fault.col + 1),
            hint="mend this line",
            code="config-broken",
        ) from None
    except TOMLKitError as fault:
        raise InputError(f"not valid TOML: {fault}", where=str(path), code="config-broken") from None


def _read(path: Path, table: Any, *, prefix: str) -> Settings:
    if not isinstance(table, dict):
        raise InputError("autotune takes a table of keys", where=str(path), code="config-value-refused")
    lines = _lines(_text(path), prefix)
    values: dict[str, Value] = {}
    severity: dict[str, Value] = {}
    faults: list[SettingFault] = []
    for name, value in table.items():
        inner = value.items() if name in (*VERB_TABLES, _SEVERITY_TABLE) and isinstance(value, dict) else None
        for key, given in [(name, value)] if inner is None else inner:
            full = key if inner is None else f"{name}.{key}"
            place = Place(str(path), lines.get(full, lines.get(name)))
            try:
                if inner is not None and name == _SEVERITY_TABLE:
                    severity[key] = Value(_checked(f"severity of {key}", "severity", given, place), place)
                else:
                    values[full] = Value(_value(key, given, place), place)
            except InputError as fault:
                faults.append(SettingFault(fault, key, "" if inner is None else name))
    return Settings(path, values, severity, tuple(faults))


def _value(key: str, value: Any, place: Place) -> Any:
    if key in (*VERB_TABLES, _SEVERITY_TABLE):
        raise InputError(
            f"'{key}' is a table, written [{key}], not {_shown(value)}",
            where=place,
            code="config-value-refused",
        )
    if key not in KEYS:
        near = get_close_matches(key.replace("_", "-"), [*KEYS, *VERB_TABLES, _SEVERITY_TABLE], n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"the keys are {', '.join(KEYS)}"
        raise InputError(f"there is no key '{key}'", where=place, hint=hint, code="config-key-unknown")
    return _checked(key, KEYS[key].kind, value, place)


def _checked(key: str, kind: Kind, value: Any, place: Place) -> Any:
    folder = Path(place.path).parent
    if kind == "switch":
        good = isinstance(value, bool)
    elif kind == "count":
        good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    elif kind == "number":
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST_NUMBER
    elif kind in ("paths", "texts"):
        good = isinstance(value, list) and all(
            isinstance(part, str) and (kind == "texts" or _is_path(part)) for part in value
        )
    elif kind == "path":
        good = isinstance(value, str) and _is_path(value)
    else:
        good = isinstance(value, str) and (kind != "severity" or value in SEVERITIES)
    if not good:
        raise InputError(
            f"{key} takes {_WANTED[kind]}, not {_shown(value)}", where=place, code="config-value-refused"
        )
    if kind == "path":
        return folder / value
    return [folder / part for part in value] if kind == "paths" else value


def _is_path(text: str) -> bool:
    return bool(text) and "\0" not in text


def _shown(value: Any) -> str:
    """A value as the file may have it, short enough for a message."""
    text = str(value) if isinstance(value, date | time) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _lines(text: str, prefix: str) -> dict[str, int]:
    """Line of each key below the prefix ("steps", "verify.steps"), as far as it is written in plain form."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line)
        if header:
            table = header[1].strip()
            if table.startswith(f"{prefix}.") or not prefix:
                found.setdefault(table.removeprefix(f"{prefix}."), number)
            continue
        key = re.match(r"""\s*(["']?)([\w/.-]+)\1\s*=""", line)
        if not key:
            continue
        full = f"{table}.{key[2]}" if table else key[2]
        if not prefix:
            found.setdefault(full, number)
        elif full.startswith(f"{prefix}."):
            found.setdefault(full.removeprefix(f"{prefix}."), number)
    return found
