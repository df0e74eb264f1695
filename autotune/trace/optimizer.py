"""How the optimizer step runs: one fused kernel per group, foreach launches, or a loop over tensors."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from autotune.records.trace_ops import OptimizerFacts
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import Context
from autotune.trace.launches import launch_calls

Mask = npt.NDArray[np.bool_]

_STEP = re.compile(r"Optimizer\.step#(.+?)(\.step)?$")
_FUSED = re.compile(r"aten::_fused_(adam|adamw|sgd|adagrad)_?$")
_FOREACH = re.compile(r"aten::_foreach_")
_FUSED_KERNEL = re.compile(r".*(FusedAdam|FusedSgd|FusedOptimizer|kOptimizer|multi_tensor_adam|_lion_update)")
_CLIP = re.compile(r"aten::_foreach_norm$|clip_grad_norm_?$|.*clip_grad\.py\(\d+\): clip_grad_norm_")
_MATH = re.compile(r"aten::(add_|mul_|addcmul_|addcdiv_|lerp_|sqrt|div|addcdiv|copy_|sub_|div_)$")


def optimizer_facts(context: Context) -> OptimizerFacts:
    """Facts from `Optimizer.step#` annotations, or from optimizer ops where there are none."""
    host, gpu, names = context.trace.host, context.trace.gpu, context.trace.names
    steps = context.host_named(_STEP.match, Host.ANNOTATION, Host.OP)
    fused_ops = context.host_named(_FUSED.match, Host.OP)
    if not steps.any():
        steps = fused_ops
    inside = context.tree.nearest(steps) >= 0
    ops = inside & (host.kind == Host.OP) & ~context.host_named(_STEP.match)
    numbers, counts = np.unique(host.name[ops], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    by_name = {names[numbers[at]]: int(counts[at]) for at in order}
    kernels = context.gpu_under(steps)
    clip = context.host_named(_CLIP.match) & ~inside
    clip_rows = np.flatnonzero(clip)
    outer = context.tree.outermost(clip)[clip_rows] if clip_rows.size else clip_rows
    named = [match for row in np.flatnonzero(steps) if (match := _STEP.match(names[host.name[row]]))]
    return OptimizerFacts.model_validate(
        {
            "name": named[0].group(1) if named else _name_of(by_name),
            "steps": int(steps.sum()),
            "implementation": _implementation(context, by_name, kernels, inside),
            "cpu_ms": context.host_span(steps).total / 1e6,
            "gpu_ms": context.busy(kernels).total / 1e6,
            "kernels": int((kernels & (gpu.kind == Gpu.KERNEL)).sum()),
            "launches": int((launch_calls(context) & inside).sum()),
            "ops": dict(list(by_name.items())[:40]),
            "clip_calls": int((outer == clip_rows).sum()),
        }
    )


def _name_of(ops: dict[str, int]) -> str | None:
    for name in ops:
        if (match := _FUSED.match(name)) is not None:
            return {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "adagrad": "Adagrad"}[match.group(1)]
    return None


def _implementation(context: Context, ops: dict[str, int], kernels: Mask, inside: Mask) -> str | None:
    if any(_FUSED.match(name) for name in ops):
        return "fused"
    gpu, names = context.trace.gpu, context.trace.names
    if any(_FUSED_KERNEL.match(names[number]) for number in np.unique(gpu.name[kernels])):
        return "fused"
    foreach = context.host_named(_FOREACH.match, Host.OP) & inside
    single = context.host_named(_MATH.match, Host.OP) & inside & (context.tree.nearest(foreach) < 0)
    if kernels.any():
        by_foreach, by_single = context.gpu_under(foreach) & kernels, context.gpu_under(single) & kernels
        weights = int(by_foreach.sum()), int(by_single.sum())
    else:
        weights = context.host_span(foreach).total, context.host_span(single).total
    if not any(weights):
        return None
    return "foreach" if weights[0] >= weights[1] else "for_loop"
