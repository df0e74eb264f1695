"""Activation checkpointing as it runs: counted in torch's implementation, described from the model."""

from __future__ import annotations

import re
import sys
from typing import Any

from . import frames, models, sites
from .core import core
from .wrapping import observe

# torch's own way from `checkpoint` to where its calls are counted
_INNER = re.compile(r"/torch/(utils/checkpoint|_compile|autograd/function|_dynamo/\w+)\.py$")
_recompute = {"plain": 0, "reentrant": 0}  # checkpointed forwards since the last step
_last: dict[str, Any] = {}


def install(module: Any) -> None:
    """`module`: torch.utils.checkpoint. `checkpoint` itself stays: torch.compile knows it by identity."""
    observe(module, "_checkpoint_without_reentrant_generator", before=_plain)
    observe(module, "check_backward_validity", before=_reentrant)


def _plain(original: Any, args: Any, kwargs: Any) -> None:
    _count("plain")


def _reentrant(original: Any, args: Any, kwargs: Any) -> None:
    _count("reentrant")


def _count(kind: str) -> None:
    _recompute[kind] += 1
    if core.settings.full and sum(_recompute.values()) <= 2 and _called_by_user(sys._getframe(2)):
        callee = "torch.utils.checkpoint.checkpoint"
        sites.record("checkpoint_enable", callee, frame=sys._getframe(2), only="torch")


def _called_by_user(frame: Any) -> bool:
    """User code calls `checkpoint`, and not a module that does so inside (a wrapped layer)."""
    while frame is not None:
        name = frame.f_code.co_filename
        if frames.is_user(name):
            return True
        if not frames.is_observer(name) and not _INNER.search(frames.library_path(name)):
            return False
        frame = frame.f_back
    return False


def step_ended(backwards: int) -> None:
    """Keep the counts of the step that ended, per micro-batch."""
    global _last
    total = sum(_recompute.values())
    if total:
        _last = {"reentrant": _recompute["reentrant"] > 0, "layers": max(1, round(total / max(1, backwards)))}
    _recompute["plain"] = _recompute["reentrant"] = 0


def collect() -> dict[str, Any]:
    """Fields of CheckpointingRecord: what ran; when nothing ran, what the model is set to."""
    root = models.root()
    modules = list(root.modules()) if root is not None else []
    # fully_shard puts a subclass in front of the wrapper's own class
    wrapped = [m for m in modules if any(kind.__name__ == "CheckpointWrapper" for kind in type(m).__mro__)]
    switched = [m for m in modules if m.__dict__.get("gradient_checkpointing") is True]
    if wrapped:
        kind = "torch-wrapper"
    elif switched:
        kind = "transformers"
    elif _deepspeed():
        kind = "deepspeed"
    else:
        kind = "torch-function"
    if not _last and not wrapped and not switched:
        return {"enabled": False}
    found: dict[str, Any] = {"enabled": True, "kind": kind, **_last}
    if not _last:
        found["layers"] = len(wrapped) or len(switched)
        if switched:
            function = getattr(switched[0], "_gradient_checkpointing_func", None)
            found["reentrant"] = getattr(function, "keywords", {}).get("use_reentrant")
    return found


def _deepspeed() -> bool:
    module: Any = sys.modules.get("deepspeed.runtime.activation_checkpointing.checkpointing")
    return module is not None and bool(module.is_configured())
