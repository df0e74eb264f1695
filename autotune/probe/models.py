"""The outermost model: found once, before its first training forward, by what the optimizers update."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from .core import call_parity, core

_root: Any = None  # weak reference
_searched = False
_trained_in_eval_mode = False
_optimizers: list[Any] = []  # weak references, in order of creation
_pad_id: int | None = None
_pad_ends_texts = False


def remember_optimizer(optimizer: Any) -> None:
    if optimizer not in optimizers():
        _optimizers.append(weakref.ref(optimizer))


def optimizers() -> list[Any]:
    return [optimizer for reference in _optimizers if (optimizer := reference()) is not None]


def root() -> Any:
    return None if _root is None else _root()


def padding() -> tuple[int | None, bool]:
    """The configured pad id, and whether the same id also ends every text."""
    return _pad_id, _pad_ends_texts


def in_eval_mode() -> bool:
    model = root()
    return model is not None and not model.training and not _trained_in_eval_mode


def training_in_mode() -> None:
    """A backward runs: when the model is in eval mode now, its mode says nothing about evaluation."""
    global _trained_in_eval_mode
    model = root()
    if model is not None and not model.training:
        _trained_in_eval_mode = True


def before_training(torch: Any, at_backward: bool = False) -> None:
    """Find the model at the first training batch after an optimizer exists, else at the first backward."""
    global _searched, _root, _pad_id, _pad_ends_texts
    if _searched or (not at_backward and not optimizers()):
        return
    _searched = True
    model = find_root(torch, optimizers())
    if model is not None:
        _root = weakref.ref(model)
        _pad_id, _pad_ends_texts = _padding_of(model)
        from . import forward_calls

        forward_calls.watch(torch, model)
    call_parity("before_first_step", model, optimizers())


def find_root(torch: Any, known: list[Any]) -> Any:
    """The module that holds most of the optimized parameters and that no other module holds."""
    wanted = {id(p) for optimizer in known for group in optimizer.param_groups for p in group["params"]}
    base = torch.nn.Module
    kinds: dict[type, bool] = {}
    modules = []
    for thing in gc.get_objects():
        kind = type(thing)
        is_module = kinds.get(kind)
        if is_module is None:
            is_module = kinds[kind] = base in kind.__mro__
        if is_module and "_modules" in thing.__dict__:
            modules.append(thing)
    children = {id(child) for module in modules for child in module._modules.values() if child is not None}
    best, best_score = None, (0, 0)
    for module in modules:
        if id(module) in children:
            continue
        held = trainable = 0
        for parameter in module.parameters():
            held += id(parameter) in wanted
            trainable += parameter.requires_grad
        score = (held, trainable)
        if score > best_score:
            best, best_score = module, score
    return best


def unwrap(model: Any) -> Any:
    """The user's own model inside compile, DDP, FSDP, DeepSpeed and adapter wrappers."""
    for _ in range(8):
        inner = None
        for name in ("_orig_mod", "module", "_fsdp_wrapped_module", "_forward_module"):
            inner = model.__dict__.get("_modules", {}).get(name)
            if inner is not None:
                break
        if (
            inner is None
            and type(model).__module__.split(".")[0] == "peft"
            and hasattr(model, "get_base_model")
        ):
            inner = model.get_base_model()
        if inner is None or inner is model:
            break
        model = inner
    return model


def class_of(model: Any) -> type:
    """The user's class; fully_shard puts a made-up subclass in front of it."""
    kinds = type(model).__mro__
    if any(kind.__name__ == "FSDPModule" for kind in kinds):
        return next((kind for kind in kinds[1:] if kind.__name__ != "FSDPModule"), kinds[0])
    return kinds[0]


def _padding_of(model: Any) -> tuple[int | None, bool]:
    config = getattr(unwrap(model), "config", None)
    value = getattr(config, "pad_token_id", None)
    if not isinstance(value, int) or value < 0:
        return None, False
    ends = getattr(config, "eos_token_id", None)
    return value, value in (ends if isinstance(ends, (list, tuple)) else (ends,))


def emit_facts(torch: Any) -> None:
    model = root()
    if model is None:
        return
    from . import model_facts

    core.emit("model", model_facts.collect(torch, model))
