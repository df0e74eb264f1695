"""What the colours of a drawn trace mean: regions of CPU ops, kinds of runtime calls, groups of kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autotune.trace.context import LAUNCH, Context
from autotune.trace.regions import Region
from autotune.trace.syncs import SYNC_CALL

REGIONS: tuple[str, ...] = ("other CPU ops", "forward", "backward", "recomputation", "optimizer step")
CALLS: tuple[str, ...] = ("other call", "kernel launch", "waiting for the GPU")
NOT_CLASSIFIED = "not classified"

assert len(REGIONS) == len(Region)

_GROUPS = {
    "communication": "communication",
    "attention": "attention",
    "linear_attention": "linear attention",
    "causal_conv": "linear attention",
    "triangular_solve": "linear attention",
    "gemm": "matrix products",
    "moe": "matrix products",
    "conv": "convolution",
    "optimizer": "optimizer",
    "memcpy": "copies",
    "memset": "copies",
    "sharding_copy": "copies",
    "layout": "copies",
    "other": NOT_CLASSIFIED,
}
SMALL_WORK = "elementwise, norms, reductions"


def class_kinds(names: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Groups of kernel classes, and for each class the number of its group."""
    groups = [_GROUPS.get(name, SMALL_WORK) for name in names]
    labels = list(dict.fromkeys(groups))
    return labels, np.array([labels.index(group) for group in groups], dtype=np.int64)


def call_kinds(context: Context) -> npt.NDArray[np.int64]:
    """For each name number, what a runtime call of that name does."""
    launch, sync = context.names(LAUNCH.match), context.names(SYNC_CALL.match)
    return np.where(sync, CALLS.index("waiting for the GPU"), np.where(launch, 1, 0)).astype(np.int64)
