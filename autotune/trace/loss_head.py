"""The output layer and the loss: how many positions go through them, and the time they take.

Both are found by size: the log-softmax over the largest number of classes names that number, and the matrix
products that have it as a dimension are the output layer's. A fused loss has no such op: nothing is said.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autotune.records.trace_ops import LossHead
from autotune.trace.columns import Host
from autotune.trace.context import Context
from autotune.trace.flops import MATMULS, op_times
from autotune.trace.inputs import decode_inputs

_SOFTMAX = "aten::_log_softmax"
_LOSS = frozenset(
    f"aten::{name}{tail}"
    for name in ("_log_softmax", "nll_loss", "nll_loss2d")
    for tail in ("", "_forward", "_backward", "_backward_data")
)
_FEWEST_CLASSES = 512  # below it a softmax may be that of a router or of a small classifier


def loss_head(context: Context) -> LossHead | None:
    """None when the trace has no shapes or no log-softmax over many classes."""
    host = context.trace.host
    softmax = np.flatnonzero(context.host_named(lambda text: text == _SOFTMAX, Host.OP) & (host.shape >= 0))
    shapes = [shape for row in softmax if len(shape := _shape(context, int(host.shape[row]))) >= 2]
    classes = max((shape[-1] for shape in shapes), default=0)
    if classes < _FEWEST_CLASSES:
        return None
    rows = sum(int(np.prod(shape[:-1])) for shape in shapes if shape[-1] == classes)
    products = _with_dimension(context, classes)
    loss = context.host_named(lambda text: text in _LOSS, Host.OP)
    loss &= context.tree.outermost(loss) == np.arange(len(host))  # an op inside another is counted once
    times = op_times(context, products | loss)
    return LossHead(
        classes=classes,
        rows=rows,
        product_ms=float(times[products].sum()) / 1e6,
        loss_ms=float(times[loss].sum()) / 1e6,
    )


def _shape(context: Context, number: int) -> list[int]:
    return decode_inputs(context.trace.shapes[number]).shape(0) or []


def _with_dimension(context: Context, classes: int) -> npt.NDArray[np.bool_]:
    """Matrix products with this number among the dimensions of an operand."""
    host = context.trace.host
    products = context.host_named(lambda text: text in MATMULS, Host.OP) & (host.shape >= 0)
    numbers = np.unique(host.shape[products])
    wanted = [
        number
        for number in numbers.tolist()
        if any(
            classes in (shape or [])
            for shape in map(decode_inputs(context.trace.shapes[number]).shape, range(3))
        )
    ]
    return products & np.isin(host.shape, wanted)
