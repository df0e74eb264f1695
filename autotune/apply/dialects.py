"""What a setting is called in the files of other programs: axolotl, LLaMA-Factory, DeepSpeed."""

from __future__ import annotations

from functools import cache
from typing import Any

from autotune.apply import configs
from autotune.apply.locate import EditRefused
from autotune.data import data_dir

Value = str | int | float | bool


def dialect_of(text: str, suffix: str) -> dict[str, Any] | None:
    """The dialect a file is written in; None for transformers' own names and for what is not known."""
    for dialect in _table():
        if all(configs.has_key(text, suffix, key) for key in dialect["holds"]):
            return dialect
    return None


def is_place_of_settings(text: str, suffix: str) -> bool:
    """Whether a job's own settings may be added to the file: not to DeepSpeed's or accelerate's."""
    dialect = dialect_of(text, suffix)
    return dialect is None or not dialect.get("other", False)


def has_setting(text: str, suffix: str, key: str) -> bool:
    """Whether the file gives a plain value to the setting, under its name there."""
    entry = _entry(text, suffix, key)
    if "refuse" in entry:
        return False
    if "sets" in entry:
        return any(configs.has_key(text, suffix, name) for name in entry["clears"])
    return configs.has_key(text, suffix, str(entry.get("name", key)), plain=True)


def names_of(text: str, suffix: str, key: str) -> list[str]:
    """Every name the setting has in the file: an override of any of them on the command line wins over it."""
    entry = _entry(text, suffix, key)
    return [*entry.get("clears", []), str(entry.get("name", key))]


def set_setting(text: str, suffix: str, key: str, value: Value) -> str:
    """The text with the setting at `value`, in the file's own words. Raises EditRefused."""
    entry = _entry(text, suffix, key)
    if "refuse" in entry:
        raise EditRefused(str(entry["refuse"]))
    spelled = str(value).lower() if isinstance(value, bool) else str(value)
    if "sets" in entry:
        wanted = entry["sets"].get(spelled)
        if wanted is None:
            raise EditRefused(f"'{key}: {value}' has no name in this configuration file")
        for name in entry["clears"]:
            if name not in wanted and configs.value_of(text, suffix, name) not in (None, False):
                text = configs.set_key(text, suffix, name, False)
        for name, new in wanted.items():
            text = configs.set_key(text, suffix, name, new)
        return text
    if "values" in entry:
        if spelled not in entry["values"]:
            raise EditRefused(f"'{key}: {value}' has no name in this configuration file")
        value = entry["values"][spelled]
    return configs.set_key(text, suffix, str(entry.get("name", key)), value)


def _entry(text: str, suffix: str, key: str) -> dict[str, Any]:
    dialect = dialect_of(text, suffix)
    found: dict[str, Any] = (dialect or {}).get("keys", {}).get(key, {})
    return found


@cache
def _table() -> list[dict[str, Any]]:
    import yaml

    text = (data_dir("rules") / "_tables" / "config_dialects.yaml").read_text(encoding="utf-8")
    loaded: list[dict[str, Any]] = yaml.safe_load(text)["dialects"]
    return loaded
