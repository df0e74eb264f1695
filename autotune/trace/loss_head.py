"""The output layer and the loss: how many positions go through them, and the time they take.

All are found by size: the log-softmax over the largest number of classes names that number, the matrix
products that have it as a dimension are the output layer's, and other ops on a tensor with that many columns
are passes over the logits: casts, copies, gradients. A fused loss has no such op: nothing is said. Nothing is
said either where the model is as wide as there are classes: its layers look like the output layer then.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from autotune.records.trace_ops import LossHead
from autotune.trace.columns import Host
from autotune.trace.context import Context
from autotune.trace.flops import MATMULS, op_times
from autotune.trace.inputs import decode_inputs

Mask = npt.NDArray[np.bool_]

_SOFTMAX = "aten::_log_softmax"
_LOSS = frozenset(
    f"aten::{name}{tail}"
    for name in ("_log_softmax", "nll_loss", "nll_loss2d")
    for tail in ("", "_forward", "_backward", "_backward_data")
)
_FEWEST_CLASSES = 512  # below it a softmax may be that of a router or of a small classifier
_MOST_PRODUCTS = 4  # of one softmax: forward, forward again where it is recomputed, two in the backward


def loss_head(context: Context) -> LossHead | None:
    """None when the trace has no shapes or no log-softmax over many classes."""
    host = context.trace.host
    softmax = np.flatnonzero(context.host_named(lambda text: text == _SOFTMAX, Host.OP) & (host.shape >= 0))
    shapes = [shape for row in softmax if len(shape := _shape(context, int(host.shape[row]))) >= 2]
    classes = max((shape[-1] for shape in shapes), default=0)
    if classes < _FEWEST_CLASSES:
        return None
    rows = sum(int(np.prod(shape[:-1])) for shape in shapes if shape[-1] == classes)
    products = _rows_with(context, products_of(context), lambda shape: classes in shape)
    if products.sum() > _MOST_PRODUCTS * sum(shape[-1] == classes for shape in shapes):
        return None
    loss = context.host_named(lambda text: text in _LOSS, Host.OP)
    loss &= context.tree.outermost(loss) == np.arange(len(host))  # an op inside another is counted once
    passes = _rows_with(
        context, context.of_kind(Host.OP), lambda shape: len(shape) >= 2 and shape[-1] == classes
    )
    passes &= ~(products | loss)
    times = op_times(context, products | loss)
    return LossHead(
        classes=classes,
        rows=rows,
        product_ms=float(times[products].sum()) / 1e6,
        loss_ms=float(times[loss].sum()) / 1e6,
        passes_ms=_passes_ms(context, passes, products | loss),
    )


def products_of(context: Context) -> Mask:
    """Host rows of matrix products."""
    return context.host_named(lambda text: text in MATMULS, Host.OP)


def _passes_ms(context: Context, passes: Mask, others: Mask) -> float:
    """Time of these rows and of what is inside them, without that of the others."""
    if context.has_gpu:
        return float(op_times(context, passes | others)[passes].sum()) / 1e6
    owner = context.tree.nearest(passes | others)
    inside = (owner >= 0) & passes[np.maximum(owner, 0)] & context.of_kind(Host.OP)
    return float(context.tree.self_time(context.trace.host.ts)[inside].sum()) / 1e6


def _shape(context: Context, number: int) -> list[int]:
    return decode_inputs(context.trace.shapes[number]).shape(0) or []


def _rows_with(context: Context, among: Mask, wanted: Callable[[list[int]], bool]) -> Mask:
    """Rows among these with such a tensor as one of their first three inputs."""
    host = context.trace.host
    among = among & (host.shape >= 0)
    numbers = [
        number
        for number in np.unique(host.shape[among]).tolist()
        if any(
            wanted(shape)
            for index in range(3)
            if (shape := decode_inputs(context.trace.shapes[number]).shape(index))
        )
    ]
    return among & np.isin(host.shape, numbers)
