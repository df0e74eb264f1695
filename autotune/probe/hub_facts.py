"""Layers that hub kernels (the `kernels` package) replaced, and why the others kept their own forward."""

from __future__ import annotations

import os
import sys
from typing import Any

_OFF = ("0", "OFF", "NO", "FALSE", "N", "F")


def switched_off() -> bool:
    """By a variable of transformers or of the kernels package."""
    return (
        os.environ.get("USE_HUB_KERNELS", "YES").upper() in _OFF
        or os.environ.get("DISABLE_KERNEL_MAPPING", "0").upper() not in ("", *_OFF)
    )  # fmt: skip


def collect(model: Any) -> dict[str, Any]:
    """Fields of ModelRecord: asked for, layers that may take a hub kernel, layers that did, why not."""
    asked = _asked(model)
    offered = replaced = 0
    for module in model.modules():
        # what the package decorated: layer classes, and functions attached to a module
        for part in (module, *getattr(module, "_kernel_funcs", {}).values()):
            if hasattr(type(part), "kernel_layer_name"):
                offered += 1
                own = getattr(type(part), "forward", None)
                now = part.__dict__.get("forward") if hasattr(part, "__dict__") else None
                replaced += now is not None and getattr(now, "__func__", now) is not own
    if asked is None and not replaced:
        return {}
    found: dict[str, Any] = {
        "hub_kernels_asked": bool(asked) or replaced > 0,
        "hub_kernel_layers": offered,
        "hub_kernels_replaced": replaced,
    }
    if asked and not replaced:
        found["hub_kernels_reason"] = _why_none(offered)
    return found


def _asked(model: Any) -> bool | None:
    """transformers' own mark, on any part of the model; None when this version has none."""
    marks = [m.__dict__["_use_kernels"] for m in model.modules() if "_use_kernels" in m.__dict__]
    return None if not marks else any(marks)


def _why_none(offered: int) -> str:
    if switched_off():
        return "switched-off"
    package: Any = sys.modules.get("kernels")
    if package is None:
        return "absent"
    if not offered:
        return "no-layer"  # nothing in this model is marked for a hub kernel
    loaded = getattr(sys.modules.get("kernels.layer.layer"), "_CACHED_LAYER", {})
    if loaded and not any(getattr(layer, "has_backward", True) for layer in loaded.values()):
        return "forward-only"
    return "no-kernel"  # none for this device and mode
