"""What reaches the outermost model's forward, seen by a hook on that one module for its first training calls.

Under torch.compile's tracing the hook returns at once. Values on a device are never waited for: a reduction
is copied to the CPU in the background and read when it has arrived.
"""

from __future__ import annotations

import ast
import inspect
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from . import batches, compile_watch, costly_lines, forward_uses, frames, growth, models, origins, sites
from .core import call_parity, core, hook

_CALLS = 4  # training calls that are described
_ABOUT = 0.3  # a shift by one token or a few more of them; half a batch is a rank's part
_seen = 0
_handles: list[Any] = []
_watched: Any = None
_pending: list[tuple[str, Any, Any]] = []  # (field, CPU copy, event) on their way from the device
_record: dict[str, Any] = {}
_names: list[str] = []
feeds_steps = False  # no DataLoader: batches are counted from the calls


def watch(torch: Any, model: Any) -> None:
    """Hook the module the loop calls. A model compiled in place is hooked around its compiled call."""
    global _watched, _names
    _watched = weakref.ref(model)
    _names = _parameters(models.unwrap(model))
    forward_uses.watch(model)
    growth.watch(model)
    if model.__dict__.get("_compiled_call_impl") is not None:
        original = model._compiled_call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            _before(model, args, kwargs)
            result = original(*args, **kwargs)
            _after(model, args, kwargs, result)
            return result

        model._compiled_call_impl = call
        return
    _handles.append(model.register_forward_pre_hook(_pre_hook, prepend=True, with_kwargs=True))
    if core.parity is not None:
        _handles.append(model.register_forward_hook(_post_hook, with_kwargs=True))


def _pre_hook(module: Any, args: Any, kwargs: Any) -> None:
    if sys.modules["torch"].compiler.is_compiling():
        return
    _before(module, args, kwargs)


def _post_hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
    if sys.modules["torch"].compiler.is_compiling():
        return
    _after(module, args, kwargs, output)


@hook
def _before(module: Any, args: Any, kwargs: Any) -> None:
    """`module`: the root; a copy of it (an averaged model, say) that inherited the hook is ignored."""
    global _seen
    torch = sys.modules["torch"]
    if _watched is None or module is not _watched() or not torch.is_grad_enabled() or models.in_eval_mode():
        return
    from .steps import steps

    steps.activity()
    call_parity("before_forward", module, args, kwargs)
    if feeds_steps:
        steps.called(batches.describe(_bound(args, kwargs), torch, *models.padding()))
    if _seen >= _CALLS:
        if not feeds_steps and core.parity is None and steps.index > 2:
            _remove()
        return
    _seen += 1
    named = _bound(args, kwargs)
    if core.settings.full:
        _record_call(module, args, kwargs, sys._getframe(1))
        _whole_batch(torch, named)
        _record["double_inputs"] = costly_lines.called_with(torch, named, sys._getframe(1))
    _describe(torch, named, kwargs)


def _record_call(module: Any, args: Any, kwargs: Any, frame: Any) -> None:
    """The call with its arguments; `whole`: it was given the batch as it left the loader."""
    forward = models.class_of(models.unwrap(module)).forward
    detail: dict[str, Any] = {}
    user = frames.nearest_user(frames.caller(frame))
    if user is not None:
        node = origins.call_node(user.f_code.co_filename, frames.span_of(user.f_code, user.f_lasti))
        if node is not None:
            detail["whole"] = _whole(node, args)
    sites.record("model_call", _callee(module), forward, args, kwargs, detail=detail, frame=frame)


def _whole(node: Any, args: Any) -> bool:
    """`model(**batch)`, or `model(batch)` when the batch holds no other tensor."""
    from .steps import steps

    if not isinstance(node, ast.Call):
        return False
    if not node.args:
        return bool(node.keywords) and all(word.arg is None for word in node.keywords)
    if len(node.args) != 1 or node.keywords or not isinstance(node.args[0], ast.Name):
        return False
    value = args[0] if len(args) == 1 else None
    seen = steps.waiting[0] if steps.waiting else None
    return isinstance(value, Mapping) or (seen is not None and seen.tensors == 1)


def _whole_batch(torch: Any, named: dict[str, Any]) -> None:
    """Whether the call is given about as many values as the loader gave: not this rank's part of a batch."""
    from .steps import steps

    fetched = steps.waiting[0].largest if steps.waiting else 0
    if fetched:
        ratio = batches.largest(named, torch) / fetched
        _record["whole_batches"] = _record.get("whole_batches", True) and abs(ratio - 1.0) <= _ABOUT


@hook
def _after(module: Any, args: Any, kwargs: Any, output: Any) -> None:
    torch = sys.modules["torch"]
    if _watched is None or module is not _watched() or not torch.is_grad_enabled() or models.in_eval_mode():
        return
    call_parity("after_forward", module, args, kwargs, output)


def _remove() -> None:
    for handle in _handles:
        handle.remove()
    _handles.clear()


def descend(torch: Any) -> None:
    """A step passed and the watched module was not called (a LightningModule, say): watch its largest part.

    Not when something is compiled: the call may run inside a graph, and moving hooks would compile it again.
    """
    model = _watched() if _watched is not None else None
    if _seen or not _handles or model is None or compile_watch.graphs():
        return
    parts = [module for module in model.children() if any(p.requires_grad for p in module.parameters())]
    if parts:
        _remove()
        watch(torch, max(parts, key=lambda module: sum(p.numel() for p in module.parameters())))


def no_loader() -> None:
    """Called when steps pass without a DataLoader: count the tokens from the calls instead."""
    global feeds_steps
    feeds_steps = bool(_handles)


def _callee(module: Any) -> str:
    kind = models.class_of(models.unwrap(module))
    return f"{kind.__module__}.{kind.__qualname__}"


def _parameters(model: Any) -> list[str]:
    try:
        return list(inspect.signature(models.class_of(model).forward).parameters)[1:]
    except (TypeError, ValueError):
        return []


def _bound(args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by name; a single mapping given by position counts as named arguments."""
    found: dict[str, Any] = {}
    for position, value in enumerate(args):
        found[_names[position] if position < len(_names) else f"#{position}"] = value
    found.update(kwargs)
    return found


def _describe(torch: Any, named: dict[str, Any], kwargs: dict[str, Any]) -> None:
    given = {name: value for name, value in named.items() if value is not None}
    mask, positions = given.get("attention_mask"), given.get("position_ids")
    _record.update(
        {
            "keys": list(given),
            "attention_mask": mask is not None,
            "boundary_arguments": [key for key in batches.BOUNDARY_KEYS if key in given],
            "use_cache_argument": given["use_cache"] if isinstance(given.get("use_cache"), bool) else None,
            "autocast_dtype": autocast(torch),
        }
    )
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        _fetch(torch, "attention_mask_all_ones", (mask != 0).all(), all)
    if isinstance(positions, torch.Tensor) and positions.dim() >= 2 and positions.shape[-1] > 1:
        _fetch(torch, "position_ids_restart", (positions[..., 1:] <= positions[..., :-1]).any(), any)
    if not _pending:
        core.emit("forward", _record)


def _fetch(torch: Any, name: str, value: Any, merge: Any) -> None:
    """Bring one truth value to the CPU without waiting for the device."""
    value = value.detach()
    if value.device.type == "cpu":
        _merge(name, bool(value), merge)
        return
    if value.device.type != "cuda":
        return
    target = torch.empty((), dtype=torch.bool, pin_memory=True)
    target.copy_(value, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    _pending.append((name, target, (event, merge)))


def _merge(name: str, value: bool, merge: Any) -> None:
    known = _record.get(name)
    _record[name] = value if known is None else merge((known, value))


def poll() -> None:
    """At a step's end: take what has arrived from the device."""
    if not _pending:
        return
    left = []
    for name, target, (event, merge) in _pending:
        if event.query():
            _merge(name, bool(target), merge)
        else:
            left.append((name, target, (event, merge)))
    _pending[:] = left
    if not left:
        core.emit("forward", _record)


def autocast(torch: Any) -> str:
    """Format of torch.autocast for the model: the loop's own context, or accelerate's around the forward."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = None
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    else:
        state: Any = sys.modules.get("accelerate.state")
        shared = state.AcceleratorState._shared_state if state is not None else {}
        model = models.root()
        wrapped = model is not None and any(
            "_original_forward" in module.__dict__ for module in (model, models.unwrap(model))
        )
        precision = str(shared.get("_mixed_precision", "no"))
        if wrapped and precision in ("bf16", "fp16"):
            return precision
    names = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    return names.get(dtype, "none")
