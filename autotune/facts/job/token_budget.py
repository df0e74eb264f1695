"""Batches that are cut to a budget of padded tokens: as many examples as fit after padding to the longest."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import correlation

from autotune.facts.sheet import SheetBuilder
from autotune.records.observation import Observation

_LEAST_BATCHES = 8
_VARIES = 2.0  # the largest number of examples is at least so many times the smallest
_FEWER_WHERE_LONGER = -0.3  # correlation of the logarithms of number and padded length


def budget_facts(sheet: SheetBuilder, observation: Observation, basis: str) -> None:
    """The budget of tokens, where there is one, and the real tokens of a batch."""
    steps = [step for rank in observation.ranks for step in rank.steps]
    source = "probe, batches on the CPU side of the loader"
    shapes = [shape for step in steps for shape in step.shapes]
    loaders = observation.ranks[0].loaders if observation.ranks else []
    if len(shapes) >= _LEAST_BATCHES and loaders and loaders[0].own_batch_sampler is not None:
        found = token_budget(shapes) if loaders[0].own_batch_sampler else None
        if found is None:
            sheet.not_applicable("data.token_budget", "the number of examples follows no budget of tokens")
        else:
            sheet.put("data.token_budget", found, source, f"{len(shapes)} micro-batches, {basis}")
    counted = [step for step in steps if step.real_tokens is not None and step.shapes]
    batches = sum(len(step.shapes) for step in counted)
    if batches:
        mean = sum(step.real_tokens or 0 for step in counted) / batches
        sheet.put("data.useful_tokens_per_batch", mean, source, f"{batches} micro-batches, {basis}")


def token_budget(shapes: Sequence[Sequence[int]]) -> int | None:
    """Padded tokens of the fullest batch seen; None where batches are not cut to a number of tokens.

    `shapes`: (examples, padded length) of each batch. A budget shows in numbers of examples that differ,
    fewer where the examples are longer; batches of any number of random examples get longer with it instead.
    """
    tables = [shape for shape in shapes if len(shape) == 2 and min(shape) > 0]
    rows = [log(shape[0]) for shape in tables]
    lengths = [log(shape[1]) for shape in tables]
    if len(tables) < _LEAST_BATCHES or max(rows) - min(rows) < log(_VARIES) or len(set(lengths)) < 2:
        return None
    if correlation(rows, lengths) > _FEWER_WHERE_LONGER:
        return None
    return max(shape[0] * shape[1] for shape in tables)
