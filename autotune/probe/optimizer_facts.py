"""How each optimizer's update really runs, and what its state weighs."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from . import idle_rows, models, sites
from .model_facts import global_count

_site_of: dict[int, str] = {}
_gradients: dict[int, tuple[dict[str, int], int]] = {}  # optimizer -> elements by format, local bytes


def made(optimizer: Any) -> None:
    """A torch optimizer was constructed: remember it and where."""
    models.remember_optimizer(optimizer)


def noted(optimizer: Any) -> None:
    """Record the constructor call in user code."""
    kind = type(optimizer)
    seen = sites.record(
        "optimizer_create",
        f"{kind.__module__}.{kind.__qualname__}",
        kind.__init__,
        detail={"foreach": _setting(optimizer, "foreach"), "fused": _setting(optimizer, "fused")},
        values=dict(optimizer.defaults),
    )
    if seen is not None:
        _site_of[id(optimizer)] = seen.id


def gradients(optimizer: Any) -> None:
    """Formats and size of the gradients that reach this optimizer, once; it is about to use them."""
    if id(optimizer) in _gradients:
        return
    idle_rows.look(optimizer)
    formats: Counter[str] = Counter()
    size = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            formats[_format(gradient)] += gradient.numel()
            local = getattr(gradient, "_local_tensor", gradient)
            size += local.numel() * local.element_size()
    if formats:
        _gradients[id(optimizer)] = (dict(formats), size)


def _format(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def collect(number: int, optimizer: Any) -> dict[str, Any]:
    """Fields of OptimizerRecord plus its key."""
    kind = type(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    fused, foreach = _setting(optimizer, "fused"), _setting(optimizer, "foreach")
    state_bytes, state_formats = _state(optimizer)
    formats, gradient_bytes = _gradients.get(id(optimizer), ({}, None))
    return {
        "key": f"optimizer-{number}",
        "class_name": kind.__name__,
        "fused": fused,
        "foreach": foreach,
        "implementation": _implementation(optimizer, parameters, fused, foreach),
        "fused_available": _fused_available(optimizer, parameters),
        "parameters": sum(global_count(p) for p in parameters),
        "state_bytes": state_bytes,
        "state_dtypes": state_formats,
        "gradient_dtypes": formats,
        "gradient_bytes": gradient_bytes,
        "idle_values": idle_rows.of(optimizer),
        "site": _site_of.get(id(optimizer)),
    }


def _setting(optimizer: Any, name: str) -> bool | None:
    values = {group.get(name) for group in optimizer.param_groups}
    if len(values) == 1:
        value = next(iter(values))
        return value if isinstance(value, bool) else None
    return None


def _implementation(optimizer: Any, parameters: list[Any], fused: bool | None, foreach: bool | None) -> str:
    """As torch's own `_default_to_fused_or_foreach` decides when nothing was asked for."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return "custom"
    if "fused" not in optimizer.defaults and "foreach" not in optimizer.defaults:
        return "for-loop"
    if fused:
        return "fused"
    if foreach:
        return "foreach"
    if foreach is None and not optimizer.defaults.get("differentiable", False):
        decide = getattr(sys.modules.get("torch.optim.optimizer"), "_default_to_fused_or_foreach", None)
        if decide is not None and parameters:
            is_fused, is_foreach = decide(parameters, False, use_fused=False)
            return "fused" if is_fused else "foreach" if is_foreach else "for-loop"
    return "for-loop"


def _fused_available(optimizer: Any, parameters: list[Any]) -> bool | None:
    """This torch has a fused update for this class on these parameters' device and format."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return None
    if "fused" not in optimizer.defaults:
        return False
    module = sys.modules.get("torch.optim.optimizer")
    devices = getattr(module, "_get_fused_kernels_supported_devices", None)
    if devices is None:
        return None
    supported = set(devices())
    return all(p.device.type in supported and p.dtype.is_floating_point for p in parameters)


def _state(optimizer: Any) -> tuple[int | None, dict[str, int]]:
    """Bytes of this rank's optimizer state, and its elements by format (counters of steps left out).

    None before the first step.
    """
    total = 0
    formats: Counter[str] = Counter()
    for state in optimizer.state.values():
        for value in state.values() if isinstance(state, dict) else ():
            value = getattr(value, "_local_tensor", value)
            if hasattr(value, "element_size"):
                total += value.numel() * value.element_size()
                if value.numel() > 1:
                    formats[_format(value)] += value.numel()
    return total or None, dict(formats)
