"""Divide a trace into forward, backward, recomputation and optimizer work.

Backward is what autograd's engine evaluates. Recomputation is forward work inside it: ops recorded with
gradients enabled, while plain backward formulas run with gradients off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from autotune.records.trace_time import KernelPair, Recompute, RegionTime
from autotune.trace.columns import Host
from autotune.trace.context import Context

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

OPTIMIZER_STEP = re.compile(r"Optimizer\.(step|zero_grad)#")
_FUSED_STEP = re.compile(r"aten::_fused_(adam|adamw|sgd|adagrad)_?")
_BACKWARD_NODE = re.compile(r"\w*Backward\d*$|torch::autograd::\w+Backward|torch::autograd::AccumulateGrad")


class Region(IntEnum):
    """Parts of a training step."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3
    OPTIMIZER = 4


_LABELS = {
    Region.FORWARD: "forward",
    Region.BACKWARD: "backward",
    Region.RECOMPUTE: "recompute",
    Region.OPTIMIZER: "optimizer",
    Region.OTHER: "other",
}


@dataclass(slots=True)
class Regions:
    """Region of every host and GPU row."""

    host: I8
    gpu: I8
    segments: int  # recomputed segments
    has_forward: bool
    has_backward: bool
    has_optimizer: bool


def find_regions(context: Context) -> Regions:
    """Assign every row to a region."""
    host = context.trace.host
    region = np.zeros(len(host), dtype=np.int8)
    in_backward = context.eval_row >= 0
    if not in_backward.any():  # traces that lost the engine's own events keep the nodes
        nodes = context.host_named(_BACKWARD_NODE.match, Host.OP)
        in_backward = context.tree.nearest(nodes) >= 0
    region[in_backward] = Region.BACKWARD
    recomputed, segments = _recomputed(context)
    region[recomputed] = Region.RECOMPUTE
    step = context.host_named(OPTIMIZER_STEP.match, Host.ANNOTATION, Host.OP)
    if not step.any():
        step = context.host_named(_FUSED_STEP.match, Host.OP)
    in_step = (context.tree.nearest(step) >= 0) & ~in_backward
    region[in_step] = Region.OPTIMIZER
    forward = _forward(context, in_backward | in_step)
    region[forward & (region == Region.OTHER)] = Region.FORWARD
    source = context.gpu_source()
    gpu = (
        np.where(source >= 0, region[np.maximum(source, 0)], np.int8(0))
        if len(host)
        else np.zeros(source.size)
    )
    stepping = context.host_named(lambda text: text.startswith("Optimizer.step#"), Host.ANNOTATION, Host.OP)
    return Regions(
        host=region,
        gpu=gpu.astype(np.int8),
        segments=segments,
        has_forward=bool(forward.any()),
        has_backward=bool(in_backward.any()),
        has_optimizer=bool(stepping.any() or context.host_named(_FUSED_STEP.match, Host.OP).any()),
    )


def _recomputed(context: Context) -> tuple[Mask, int]:
    """Host rows inside recomputed segments, and the number of segments."""
    host = context.trace.host
    inside = np.zeros(len(host), dtype=bool)
    rows = np.flatnonzero(
        (context.eval_row >= 0) & (host.kind == Host.OP) & (host.forward == 0) & (host.sequence >= 0)
    )
    if not rows.size:
        return inside, 0
    nodes, inverse, counts = np.unique(context.eval_row[rows], return_inverse=True, return_counts=True)
    evaluated = int((context.eval_row == np.arange(len(host), dtype=np.int32)).sum())
    if nodes.size > 0.5 * evaluated and evaluated > 20:
        return inside, 0  # gradients of gradients: every node records its formula
    low, high = _extent(context, rows, inverse, nodes.size)
    segments = 0
    for at in np.flatnonzero(counts >= 3):  # a single op with gradients on is a hook, not a block
        part = context.between(int(host.thread[nodes[at]]), int(low[at]), int(high[at]))
        inside[part] |= context.eval_row[part] == nodes[at]
        segments += 1
    return inside, segments


def _extent(
    context: Context, rows: npt.NDArray[np.int64], group: npt.NDArray[np.int64], size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First start and last end of the rows of each group."""
    low = np.full(size, np.iinfo(np.int64).max)
    high = np.zeros(size, dtype=np.int64)
    np.minimum.at(low, group, context.trace.host.ts[rows])
    np.maximum.at(high, group, context.tree.end[rows])
    return low, high


def _forward(context: Context, elsewhere: Mask) -> Mask:
    """Rows of forward passes: from the first to the last forward op of each burst, on its thread."""
    host = context.trace.host
    is_op = host.kind == Host.OP
    rows = np.flatnonzero(is_op & ~elsewhere & (host.forward == 0) & (host.sequence >= 0))
    if not rows.size:
        return np.asarray((context.tree.nearest(is_op) >= 0) & ~elsewhere)
    breaks = context.host_span(elsewhere & is_op)
    burst = np.searchsorted(breaks.starts, host.ts[rows])
    key = host.thread[rows].astype(np.int64) * (len(breaks) + 2) + burst
    groups, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    low, high = _extent(context, rows, inverse, groups.size)
    inside = np.zeros(len(host), dtype=bool)
    for row, begin, end in zip(rows[first].tolist(), low.tolist(), high.tolist(), strict=True):
        inside[context.between(int(host.thread[row]), begin, end)] = True
    return inside & ~elsewhere


def region_times(context: Context, regions: Regions) -> list[RegionTime]:
    """GPU and CPU time of each region that occurs."""
    gpu, host = context.trace.gpu, context.trace.host
    is_op = host.kind == Host.OP
    result = []
    for region, label in _LABELS.items():
        rows, ops = regions.gpu == region, is_op & (regions.host == region)
        if not rows.any() and not ops.any():
            continue
        result.append(
            RegionTime.model_validate(
                {
                    "region": label,
                    "gpu_ms": context.busy(rows).total / 1e6,
                    "gpu_sum_ms": int(gpu.dur[rows].sum()) / 1e6,
                    "kernels": int((rows & (gpu.kind == 0)).sum()),
                    "cpu_ms": context.host_span(ops).total / 1e6,
                }
            )
        )
    return result


# Forward kernels or ops and their partners; without recomputation both run equally often.
_PAIRS = (
    (r"(pytorch_flash::)?flash_fwd", r"(pytorch_flash::)?flash_bwd_(dq_dk_dv|loop)"),
    (r"cudnn_generated_\w*(flash_)?fprop", r"cudnn_generated_\w*(flash_)?bprop"),
    (r"fmha_cutlassF", r"fmha_cutlassB"),
    (r"causal_conv1d_(channellast_)?fwd", r"causal_conv1d_(channellast_)?bwd"),
    (r"chunk_fwd_kernel_o", r"chunk_gated_delta_rule_bwd_kernel_dhu"),
    (r"_chunk_scan_fwd", r"_chunk_scan_bwd_(kernel_dz|dz|dstates)"),
    (r"layer_norm_fwd|rms_norm_fwd|_rms_norm_forward", r"layer_norm_bwd|rms_norm_bwd|_rms_norm_backward"),
)
_OP_PAIRS = (
    ("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_flash_attention_backward"),
    (
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_efficient_attention_backward",
    ),
    ("aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward"),
    (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    ("aten::native_layer_norm", "aten::native_layer_norm_backward"),
    ("aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward"),
    ("aten::native_batch_norm", "aten::native_batch_norm_backward"),
    ("aten::convolution", "aten::convolution_backward"),
    ("aten::silu", "aten::silu_backward"),
    ("aten::gelu", "aten::gelu_backward"),
    ("aten::native_dropout", "aten::native_dropout_backward"),
)


def find_recompute(context: Context, regions: Regions) -> Recompute:
    """Whether activations are recomputed, from ops inside backward and from doubled forward work."""
    pairs = _kernel_pairs(context) + _op_pairs(context)
    rows = regions.gpu == Region.RECOMPUTE
    doubled = [pair for pair in pairs if pair.forward_count >= 2 * pair.backward_count > 0]
    evidence = []
    if regions.segments:
        evidence.append(f"{regions.segments} segments of forward ops run inside backward nodes")
    for pair in doubled[:4]:
        evidence.append(
            f"{pair.forward} {pair.forward_count} times, {pair.backward} {pair.backward_count} times"
        )
    checkpoint = context.host_named(lambda text: text.startswith("CheckpointFunctionBackward"), Host.OP)
    if checkpoint.any():
        evidence.append(f"{int(checkpoint.sum())} CheckpointFunctionBackward nodes")
    detected: bool | None = None
    if regions.has_backward:
        detected = bool(regions.segments or checkpoint.any() or (doubled and len(doubled) == len(pairs)))
    return Recompute(
        detected=detected,
        gpu_ms=context.busy(rows).total / 1e6,
        kernels=int((rows & (context.trace.gpu.kind == 0)).sum()),
        regions=regions.segments,
        pairs=pairs,
        evidence=evidence,
    )


def _kernel_pairs(context: Context) -> list[KernelPair]:
    from autotune.trace.classes import split_name

    gpu, names = context.trace.gpu, context.trace.names
    numbers, counts = np.unique(gpu.name[gpu.kind == 0], return_counts=True)
    heads = [split_name(names[number])[0] for number in numbers]
    found = []
    for forward, backward in _PAIRS:
        ahead = {head: int(n) for head, n in zip(heads, counts, strict=True) if re.match(forward, head)}
        behind = {head: int(n) for head, n in zip(heads, counts, strict=True) if re.match(backward, head)}
        if ahead and behind:
            found.append(
                KernelPair(
                    forward=max(ahead, key=lambda head: ahead[head]),
                    backward=max(behind, key=lambda head: behind[head]),
                    forward_count=sum(ahead.values()),
                    backward_count=sum(behind.values()),
                )
            )
    return found


def _op_pairs(context: Context) -> list[KernelPair]:
    calls = context.op_calls()
    return [
        KernelPair(
            forward=forward,
            backward=backward,
            forward_count=calls[forward],
            backward_count=calls[backward],
        )
        for forward, backward in _OP_PAIRS
        if forward in calls and backward in calls
    ]
