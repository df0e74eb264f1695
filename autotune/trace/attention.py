"""Which attention ran, and how linear-attention and short-convolution layers were computed."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import numpy.typing as npt

from autotune.records.trace_ops import (
    AttentionFacts,
    ConvolutionFacts,
    KernelFamily,
    LinearAttentionFacts,
)
from autotune.trace.classes import split_name
from autotune.trace.columns import Host
from autotune.trace.context import Context
from autotune.trace.inputs import Inputs, decode_inputs
from autotune.trace.mixers import mixer_work

Mask = npt.NDArray[np.bool_]

_SDPA = "aten::scaled_dot_product_attention"
_BACKENDS = (
    ("flash", re.compile(r"aten::_scaled_dot_product_flash_attention(_for_cpu)?(_backward)?$")),
    ("efficient", re.compile(r"aten::_scaled_dot_product_efficient_attention(_backward)?$")),
    ("cudnn", re.compile(r"aten::_scaled_dot_product_cudnn_attention(_backward)?$")),
    ("math", re.compile(r"aten::_scaled_dot_product_attention_math(_for_mps)?$")),
    ("other", re.compile(r"aten::_scaled_dot_product_fused_attention_overrideable(_backward)?$")),
    ("varlen", re.compile(r"torch_attn::_varlen_attn(_out)?(_backward)?$")),
    (
        "flash_package",
        re.compile(
            r"(flash_attn(_\d)?|flash_attn_interface|flash_attention\w*|_vllm_fa\d_C|vllm_flash_attn\w*)"
            r"::\w*(fwd|forward|bwd|backward|func)\w*$|_?FlashAttn\w*Func\w*$"
        ),
    ),
    ("flex", re.compile(r"(flex_attention|FlexAttention\w*)(Backward)?$|higher_order::flex_attention\w*")),
)
_FAMILIES = (
    ("flash3", re.compile(r"FlashAttn(Fwd|Bwd)Sm90|flash::enable_sm90")),
    ("flash4", re.compile(r"FlashAttention(Forward|Backward)Sm100|flash_(fwd|bwd)_sm100")),
    ("flash2", re.compile(r"flash_(fwd|bwd)_|flash::compute_attn")),
    ("cudnn", re.compile(r"^cudnn_generated|^(void )?cudnn::")),
    ("efficient", re.compile(r"fmha_cutlass[FB]|AttentionKernel<|AttentionBackwardKernel<")),
    ("trtllm", re.compile(r"^fmhaSm|^fmha_v2|tensorrt_llm")),
    ("flashinfer", re.compile(r"flashinfer|BatchPrefill|BatchDecode")),
    ("ck", re.compile(r"ck_tile|^aiter")),
    ("flex", re.compile(r"flex_attention")),
    ("triton", re.compile(r"^_?(attn|fwd|bwd|kernel_unified|attention)_|^triton_")),
)
_IS_BACKWARD = re.compile(r"_(backward|bwd)$|Backward\d*$")
_PLANNED = re.compile(r"aten::_cudnn_attention_(forward|backward)$")
_PLANNING_NS = 5_000_000  # a call whose plan is there takes 0.1 to 0.3 ms, one that plans 50 to 90
_INNER = re.compile(r"aten::_(flash|efficient|cudnn)_attention_forward$")


def attention_facts(context: Context) -> AttentionFacts:
    """Attention calls by backend, masks and shapes; forward counts include recomputed calls."""
    host, names = context.trace.host, context.trace.names
    forward: Counter[str] = Counter()
    backward: Counter[str] = Counter()
    covered = np.zeros(len(host), dtype=bool)
    calls = np.zeros(len(host), dtype=bool)
    for backend, pattern in _BACKENDS:
        rows = context.host_named(pattern.match, Host.OP)
        if not rows.any():
            continue
        if covered.any():
            rows &= ~_inside(context, covered)
        is_back = context.names(_IS_BACKWARD.search)[host.name] if len(host) else rows
        if (rows & ~is_back).any():
            forward[backend] += int((rows & ~is_back).sum())
        if (rows & is_back).any():
            backward[backend] += int((rows & is_back).sum())
        covered |= rows
        calls |= rows & ~is_back
    bare = context.host_named(_INNER.match, Host.OP)
    if bare.any() and covered.any():
        bare &= context.tree.nearest(covered) < 0
    for row in np.flatnonzero(bare):
        forward["flash" if "flash" in names[host.name[row]] else "other"] += 1
    calls |= bare
    sdpa = context.ops_named(_SDPA)
    described = np.flatnonzero(sdpa if sdpa.any() else calls)
    return _describe(context, described, bool(sdpa.any()), dict(forward), dict(backward), covered)


def _inside(context: Context, covered: Mask) -> Mask:
    """Rows below (not at) a covered row."""
    parent = context.tree.parent
    nearest = context.tree.nearest(covered)
    return np.asarray((parent >= 0) & (nearest[np.maximum(parent, 0)] >= 0))


def _describe(
    context: Context,
    rows: npt.NDArray[np.int64],
    composite: bool,
    forward: dict[str, int],
    backward: dict[str, int],
    covered: Mask,
) -> AttentionFacts:
    inputs = [_inputs(context, int(row)) for row in rows]
    masks = [item.given(3) if composite and item.types else None for item in inputs]
    with_mask = [item for item, mask in zip(inputs, masks, strict=True) if mask]
    inside = covered | context.ops_named(_SDPA)
    return AttentionFacts(
        backends=forward,
        backward_calls=backward,
        calls=sum(forward.values()) or int(rows.size),
        mask_passed=sum(mask is True for mask in masks),
        mask_absent=sum(mask is False for mask in masks),
        mask_unknown=sum(mask is None for mask in masks),
        mask_dtypes=sorted({item.types[3] for item in with_mask if len(item.types) > 3}),
        mask_shapes=_distinct(item.shape(3) or [] for item in with_mask),
        enable_gqa=_flag([item.value(7) for item in inputs]) if composite else None,
        causal=_flag([item.value(5) for item in inputs]) if composite else None,
        query_shapes=_distinct(item.shape(0) or [] for item in inputs),
        key_shapes=_distinct(item.shape(1) or [] for item in inputs),
        dtypes=sorted({kind for item in inputs if (kind := item.dtype(0)) is not None}),
        eager_softmax_calls=_eager_softmax(context, inside),
        families=_families(context),
        gpu_ms=context.busy(context.gpu_of_class("attention") | context.gpu_under(inside)).total / 1e6,
        planning_ms=_planning_ms(context),
    )


def _planning_ms(context: Context) -> float:
    """CPU time of the calls in which cuDNN made a plan: for each shape, in the forward and the backward."""
    rows = context.host_named(_PLANNED.match, Host.OP)
    if not rows.any():
        return 0.0
    own = context.tree.self_time(context.trace.host.ts)[rows]
    return float(own[own >= _PLANNING_NS].sum()) / 1e6


def _families(context: Context) -> list[KernelFamily]:
    """Attention kernels by implementation, from their names."""
    gpu, names = context.trace.gpu, context.trace.names
    rows = context.gpu_of_class("attention")
    totals: dict[str, list[int]] = {}
    for number in np.unique(gpu.name[rows]):
        mine = rows & (gpu.name == number)
        family = next((name for name, pattern in _FAMILIES if pattern.search(names[number])), "other")
        entry = totals.setdefault(family, [0, 0])
        entry[0] += int(mine.sum())
        entry[1] += int(gpu.dur[mine].sum())
    return [
        KernelFamily(family=family, kernels=count, total_ms=time / 1e6)
        for family, (count, time) in sorted(totals.items(), key=lambda item: -item[1][1])
    ]


def _inputs(context: Context, row: int) -> Inputs:
    shape = context.trace.host.shape[row]
    return decode_inputs(context.trace.shapes[shape]) if shape >= 0 else Inputs([], [], [])


def _distinct(shapes: object) -> list[list[int]]:
    found = sorted({tuple(shape) for shape in shapes if shape})  # type: ignore[attr-defined]
    return [list(shape) for shape in found[:20]]


def _flag(values: list[object]) -> bool | None:
    known = [str(value) == "True" for value in values if value is not None]
    return any(known) if known else None


def _eager_softmax(context: Context, inside: Mask) -> int:
    """Softmax over [.., rows, columns] scores of a sequence with itself, outside fused attention."""
    host = context.trace.host
    softmax = context.ops_named("aten::_softmax")
    if not softmax.any():
        return 0
    rows = np.flatnonzero(softmax & (context.tree.nearest(inside) < 0))
    shapes, counts = np.unique(host.shape[rows], return_counts=True)
    total = 0
    for shape, count in zip(shapes.tolist(), counts.tolist(), strict=True):
        dims = decode_inputs(context.trace.shapes[shape]).shape(0) if shape >= 0 else None
        if dims and len(dims) in (3, 4) and dims[-1] >= 16 and dims[-2] >= 16 and dims[-1] >= dims[-2]:
            total += count
    return total


def linear_attention_facts(context: Context) -> LinearAttentionFacts:
    """Fused mixer kernels, or the calls that give the torch fallback away."""
    gpu, host, names = context.trace.gpu, context.trace.host, context.trace.names
    fast = context.gpu_of_class("linear_attention")
    numbers, counts = np.unique(gpu.name[fast], return_counts=True)
    functions = context.host_named(
        lambda text: context.table.of_op(text) == "linear_attention", Host.OP
    ) & ~context.host_named(lambda text: text.startswith("autograd::engine"), Host.OP)
    called, calls = np.unique(host.name[functions], return_counts=True)
    solves = context.ops_named("aten::linalg_solve_triangular")
    backward = context.host_named(lambda text: text.startswith("LinalgSolveTriangularBackward"), Host.OP)
    loops = _clone_loops(context)
    return LinearAttentionFacts(
        triangular_solves=int(solves.sum()),
        triangular_solve_backwards=int(backward.sum()),
        clone_loop_calls=int(loops.sum()),
        fast_kernels=int(fast.sum()),
        fast_kernel_ms=context.busy(fast).total / 1e6,
        fast_kernel_names=[names[number] for number in numbers[np.argsort(-counts)]][:40],
        fast_functions={names[n]: int(c) for n, c in zip(called, calls, strict=True)},
        fallback_gpu_ms=context.busy(mixer_work(context, solves | backward | loops)).total / 1e6,
    )


def _clone_loops(context: Context) -> Mask:
    """`aten::clone` calls on leading blocks that grow by one: row by row forward substitution."""
    host = context.trace.host
    clones = context.ops_named("aten::clone")
    blocks: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for shape in np.unique(host.shape[clones]).tolist():
        dims = decode_inputs(context.trace.shapes[shape]).shape(0) if shape >= 0 else None
        if dims and len(dims) >= 4 and dims[-1] == dims[-2] and dims[-1] < 256:
            blocks.setdefault(tuple(dims[:-2]), {}).setdefault(dims[-1], []).append(shape)
    growing = [
        shape
        for sizes in blocks.values()
        if len(sizes) >= 15 and max(sizes) - min(sizes) + 1 <= len(sizes) + 2
        for shapes in sizes.values()
        for shape in shapes
    ]
    return np.asarray(clones & np.isin(host.shape, growing))


def convolution_facts(context: Context) -> ConvolutionFacts:
    """Depthwise convolutions over sequences by torch, and fused causal-conv kernels."""
    gpu, host, names = context.trace.gpu, context.trace.host, context.trace.names
    depthwise = _depthwise(context, 0, "aten::conv1d", "aten::convolution")
    both = depthwise | _depthwise(context, 1, "aten::convolution_backward")
    upper = context.tree.outermost(depthwise)
    top = depthwise & (upper == np.arange(len(host)))
    heads = {int(number): split_name(names[number])[0] for number in np.unique(gpu.name)}
    fused = _by_head(gpu.name, heads, re.compile(r"_?(\w+::)*causal_conv1d"))
    plain = _by_head(gpu.name, heads, re.compile(r"(\w+::)*(conv_depthwise|dwconv)"))
    working = np.isin(
        context.gpu_class, [context.class_names.index(name) for name in ("conv", "causal_conv", "gemm")]
    )
    plain |= context.gpu_under(both) & working & ~fused
    return ConvolutionFacts(
        depthwise_calls=int(top.sum()) or int(context.ops_named("aten::_conv_depthwise2d").sum()),
        depthwise_kernels=int(plain.sum()),
        depthwise_kernel_ms=context.busy(plain).total / 1e6,
        causal_conv_kernels=int(fused.sum()),
        causal_conv_kernel_ms=context.busy(fused).total / 1e6,
        matrix_ms=_on_matrix_units(context),
    )


def _on_matrix_units(context: Context) -> float:
    """Milliseconds of the convolution kernels whose names show it."""
    gpu, names = context.trace.gpu, context.trace.names
    rows = context.gpu_of_class("conv")
    known = [n for n in np.unique(gpu.name[rows]).tolist() if context.table.is_matrix_convolution(names[n])]
    return float(gpu.dur[rows & np.isin(gpu.name, known)].sum()) / 1e6


def _depthwise(context: Context, first: int, *names: str) -> Mask:
    """Calls of these ops that convolve sequences channel by channel; `first` is the input's position."""
    host = context.trace.host
    result = np.zeros(len(host), dtype=bool)
    rows = np.flatnonzero(context.ops_named(*names) & (host.shape >= 0))
    for shape in np.unique(host.shape[rows]).tolist():
        item = decode_inputs(context.trace.shapes[shape])
        weight = item.shape(first + 1)
        if weight and len(weight) == 3 and weight[0] > 1 and weight[1] == 1 and _groups(item) != 1:
            result[rows[host.shape[rows] == shape]] = True
    return result


def _groups(item: Inputs) -> int | None:
    for index in (6, 8):  # conv1d and convolution carry `groups` last
        value = item.value(index)
        if value is not None and str(value).isdigit():
            return int(value)
    return None


def _by_head(column: npt.NDArray[np.int32], heads: dict[int, str], pattern: re.Pattern[str]) -> Mask:
    wanted = [number for number, head in heads.items() if pattern.match(head)]
    return np.isin(column, wanted)
