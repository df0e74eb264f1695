"""The whole fact catalogue, one file per group under `catalog/`."""

from __future__ import annotations

from functools import cache

from autotune.facts.catalog import (
    attention,
    comm,
    compile,
    data,
    debug,
    device,
    env,
    host,
    kernels,
    launch,
    loss,
    memory,
    model,
    optimizer,
    packing,
    precision,
    run,
    stall,
    sync,
    trainer,
)
from autotune.facts.fact import Fact

_GROUPS = (
    run,
    model,
    kernels,
    attention,
    data,
    packing,
    memory,
    optimizer,
    sync,
    precision,
    debug,
    launch,
    comm,
    loss,
    compile,
    stall,
    device,
    env,
    trainer,
    host,
)


@cache
def catalogue() -> dict[str, Fact]:
    """Every fact by name, in the order of the groups."""
    return {fact.name: fact for group in _GROUPS for fact in group.FACTS}
