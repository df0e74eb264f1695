"""Every process group this rank belongs to, as torch.distributed keeps them."""

from __future__ import annotations

import sys
from typing import Any

_MOST_GROUPS = 64
_MOST_RANKS = 256


def collect() -> list[dict[str, Any]]:
    """Fields of ProcessGroupRecord, the default group first; empty without torch.distributed."""
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(module, "_world", None)
    if world is None or not module.is_initialized():
        return []
    found = []
    for group, (backend, _) in list(world.pg_map.items())[:_MOST_GROUPS]:
        ranks = sorted(world.pg_group_ranks.get(group, {}))
        found.append(
            {
                "name": str(world.pg_names.get(group, "")),
                "description": str(getattr(group, "group_desc", "") or ""),
                "backend": str(world.pg_backend_config.get(group, backend)),
                "size": len(ranks) or int(group.size()),
                "ranks": ranks[:_MOST_RANKS],
            }
        )
    return found
