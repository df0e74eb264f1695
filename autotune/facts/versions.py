"""Which installed versions do not work together, from a table; an unreadable version decides nothing."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import yaml

from autotune.data import data_dir

_Version = tuple[int, ...]
_COMPARE: dict[str, Callable[[_Version, _Version], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


def parse_version(text: str) -> _Version | None:
    """Leading numbers of a version, "2.11.0+cu130" -> (2, 11, 0); None when there are none."""
    match = re.match(r"(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def satisfies(version: str, condition: str) -> bool | None:
    """Whether a version meets ">=5.17,<5.18"; None when either cannot be read."""
    found = parse_version(version)
    if found is None:
        return None
    for part in condition.split(","):
        match = re.match(r"\s*(>=|<=|==|>|<)\s*([\d.]+)\s*$", part)
        limit = parse_version(match.group(2)) if match else None
        if match is None or limit is None:
            return None
        length = max(len(found), len(limit))
        left, right = (v + (0,) * (length - len(v)) for v in (found, limit))
        if not _COMPARE[match.group(1)](left, right):
            return False
    return True


@cache
def _table() -> dict[str, Any]:
    text = (data_dir("rules") / "_tables" / "version_windows.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


def version_conflicts(packages: Mapping[str, str], capability: float | None) -> list[tuple[str, str]]:
    """(package, what is wrong) for each pair outside its window; `capability` is the GPU's."""
    found = []
    for row in _table()["windows"]:
        mine, other = packages.get(row["package"]), packages.get(row["because_of"])
        if mine is None or other is None or packages.get(row.get("unless_installed", "")) is not None:
            continue
        device = row.get("device")
        if device is not None and not (capability is not None and device[0] <= capability < device[1]):
            continue
        if satisfies(other, row["when"]) is not True:
            continue
        allowed = [satisfies(mine, row[key]) for key in ("allowed", "allowed_also") if key in row]
        if all(answer is False for answer in allowed):
            wanted = " or ".join(row[key] for key in ("allowed", "allowed_also") if key in row)
            text = (
                f"{row['package']} {mine} with {row['because_of']} {other} (wants {wanted}): {row['effect']}"
            )
            found.append((row["package"], text))
    return found


def stale_packages(packages: Mapping[str, str]) -> list[str]:
    """What is too old for what rules recommend."""
    found = []
    for row in _table()["stale"]:
        version = packages.get(row["package"])
        if version is not None and satisfies(version, f"<{row['below']}") is True:
            found.append(f"{row['package']} {version} (below {row['below']}: {row['why']})")
    return found


def delta_rule_backward_breaks(triton: str, capability: float) -> bool | None:
    """Whether this Triton makes the gated backward of flash-linear-attention raise on this GPU.

    None when the version cannot be read. Without regard to tilelang, which avoids it.
    """
    for row in _table()["windows"]:
        if row["package"] == "triton" and "allowed_also" in row:
            low, high = row["device"]
            fits = [satisfies(triton, row["allowed"]), satisfies(triton, row["allowed_also"])]
            if None in fits:
                return None
            return bool(low <= capability < high and not any(fits))
    return None
