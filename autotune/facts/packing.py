"""Whether packed examples stay apart, from a table of measured cases; what is not in it is unknown."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Literal

import yaml

from autotune.data import data_dir

Verdict = Literal["isolated", "leaks", "unknown"]
Implementation = Literal["fast", "fallback", "dense"]

_CU = ("cu_seq_lens_q", "cu_seq_lens_k")
_RANK: dict[Verdict, int] = {"isolated": 0, "unknown": 1, "leaks": 2}


def packing_verdict(
    family: str,
    implementation: Implementation,
    kwargs: Collection[str],
    attention: str,
    batch: int,
    mask: bool,
    use_cache: bool,
    transformers_version: str | None,
) -> Verdict:
    """Isolation of packed rows for one way of calling a model.

    `family` is transformers' model_type, `kwargs` the boundary arguments that reach the model (position_ids
    only when they restart), `attention` the implementation in effect, `batch` rows per micro-batch, `mask`
    whether a 2-D attention mask is passed.
    """
    table = _table()
    if family not in table["families"]:
        family = family.removesuffix("_text")  # the text part of a family has a model_type of its own
    covered, row = _row(table, family, transformers_version)
    if not covered:
        return "unknown"
    verdict = _family_verdict(row, implementation, kwargs, attention)
    return _worse(verdict, _attention_verdict(table, kwargs, attention, batch, mask, use_cache))


def is_dense(family: str) -> bool:
    """Whether the table knows the family as one with softmax attention only."""
    families = _table()["families"]
    return "dense" in families.get(family, families.get(family.removesuffix("_text"), {}))


def _worse(first: Verdict, second: Verdict | None) -> Verdict:
    return first if second is None or _RANK[first] >= _RANK[second] else second


@cache
def _table() -> dict[str, Any]:
    text = (data_dir("rules") / "_tables" / "packing_isolation.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


def _row(table: Mapping[str, Any], family: str, version: str | None) -> tuple[bool, Mapping[str, Any] | None]:
    """Whether the version is known for this family, and the family's row there."""
    row, minor = table["families"].get(family), _numbers(version or "")
    base = _numbers(table["transformers"])
    if minor == base:
        return True, row
    # measured with the same verdict at both ends: what lies between counts as known, too
    for last, families in table["same_verdicts_in"].items():
        if base < minor <= _numbers(last) and family in families:
            return True, row
    ends: dict[tuple[int, ...], Mapping[str, Any] | None] = {base: row}
    for measured, found in table["measured_in"].items():
        ends[_numbers(measured)] = row if family in found["same"] else found["other"].get(family)
    below = [end for end in ends if end <= minor]
    above = [end for end in ends if end >= minor]
    if not minor or not below or not above:
        return False, None
    first, last = ends[max(below)], ends[min(above)]
    return (first is not None and first == last), first


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor number; empty when there are none."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match.group(1)), int(match.group(2))) if match else ()


def _level(kwargs: Collection[str]) -> str:
    given = set(kwargs)
    cu = all(name in given for name in _CU)
    seq = "seq_idx" in given
    if cu and seq:
        return "all_plus_cu_seqlens" if "cu_seqlens" in given else "all"
    if cu or seq:
        return "cu" if cu else "seq_idx"
    return "pos" if "position_ids" in given else "none"


def _family_verdict(
    entry: Mapping[str, Any] | None, implementation: Implementation, kwargs: Collection[str], attention: str
) -> Verdict:
    if entry is None:
        return "unknown"
    level = _level(kwargs)
    if level == "none":
        return "leaks"  # nothing tells the examples apart
    columns: Mapping[str, Verdict] = entry.get(implementation, {})
    override: Mapping[str, Verdict] = entry.get("attention_override", {}).get(attention, {})
    if implementation == "fast" and level in override:
        return override[level]
    if level in columns:
        return columns[level]
    if "any" in columns:
        return columns["any"]
    if implementation == "dense" and columns.get("pos") == columns.get("all") == "isolated":
        return "isolated"  # softmax layers ignore the arguments they do not know
    return "unknown"


def _attention_verdict(
    table: Mapping[str, Any], kwargs: Collection[str], attention: str, batch: int, mask: bool, use_cache: bool
) -> Verdict | None:
    cu = all(name in kwargs for name in _CU)
    state = {"mask": mask, "use_cache": use_cache, "batched": batch > 1, "cu_kwargs": cu}
    for row in table["attention_overrides"]:
        if attention in row["attention"] and all(row[key] == state[key] for key in state if key in row):
            verdict: Verdict = row["verdict"]
            return verdict
    return None
