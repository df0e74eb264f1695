"""When a process becomes a rank of the job, and which one."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from .core import core
from .process import rank_variables


@dataclass(frozen=True)
class Rank:
    rank: int
    world_size: int
    local_rank: int
    one_node: bool  # every rank runs on this machine, so files of the launch folder are seen at once
    trigger: str


def promote(trigger: str) -> None:
    """Make this process a rank (once): claim its folder and report the environment."""
    if core.rank is not None or not core.active:
        return
    core.rank = _identify(trigger)
    core.sink.open_rank(core.rank.rank)
    core.emit(
        "start",
        {
            "schema": 1,
            "rank": core.rank.rank,
            "world_size": core.rank.world_size,
            "local_rank": core.rank.local_rank,
            "pid": os.getpid(),
            "at_s": time.monotonic(),
            "boot_s": core.boot_s,
            "unix_s": time.time(),
            "trigger": trigger,
            "mode": core.settings.mode,
        },
    )
    from . import environment

    environment.report()
    core.sink.flush()


def cuda_started() -> None:
    """CUDA was initialised: a rank when the launcher says which one; else wait for a clearer sign."""
    if core.active and "RANK" in rank_variables():
        promote("cuda")


def _identify(trigger: str) -> Rank:
    variables = rank_variables()
    rank, world = variables.get("RANK", 0), variables.get("WORLD_SIZE", 1)
    local = variables.get("LOCAL_RANK", rank)
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world = distributed.get_rank(), distributed.get_world_size()
        local = variables.get("LOCAL_RANK", rank)
    address = os.environ.get("MASTER_ADDR", "")
    one_node = (
        world == 1
        or variables.get("LOCAL_WORLD_SIZE") == world
        or ("LOCAL_WORLD_SIZE" not in variables and address in ("", "localhost", "127.0.0.1", "::1"))
    )
    return Rank(rank, world, local, one_node, trigger)


def has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False
