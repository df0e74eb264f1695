"""Where user code makes models, configurations and switches checkpointing on (transformers, peft)."""

from __future__ import annotations

from typing import Any

from . import sites
from .wrapping import observe

_inside = 0


def install_modeling(module: Any) -> None:
    """`module`: transformers.modeling_utils."""
    model = module.PreTrainedModel
    for name in ("from_pretrained", "_from_config"):
        observe(model, name, before=_enter, after=_created(name), failed=_leave)
    observe(model, "__init__", after=_constructed)
    observe(model, "gradient_checkpointing_enable", before=_checkpointing)


def install_auto(module: Any) -> None:
    """`module`: transformers.models.auto.auto_factory."""
    for name in ("from_pretrained", "from_config"):
        observe(module._BaseAutoModelClass, name, before=_enter, after=_created(name), failed=_leave)


def install_configuration(module: Any) -> None:
    """`module`: transformers.configuration_utils."""
    config = getattr(module, "PreTrainedConfig", None) or getattr(module, "PretrainedConfig", None)
    if config is not None:
        observe(config, "from_pretrained", before=_config_loaded)
        made = "__post_init__" if "__post_init__" in config.__dict__ else "__init__"
        observe(config, made, after=_config_made)


def _config_made(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    kind = type(args[0])
    callee = f"{kind.__module__}.{kind.__qualname__}"
    sites.record("config_create", callee, kind.__init__, values=dict(vars(args[0])), only="named")


def _enter(original: Any, args: Any, kwargs: Any) -> None:
    global _inside
    _inside += 1


def _leave() -> None:
    global _inside
    _inside = max(0, _inside - 1)


def _created(name: str) -> Any:
    def after(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
        _leave()
        if _inside:
            return
        kind = args[0]
        made = type(result[0] if isinstance(result, tuple) else result)
        sites.record(
            "model_create",
            f"{kind.__module__}.{kind.__qualname__}.{name}",
            original,
            args[1:],
            kwargs,
            detail={"made": f"{made.__module__}.{made.__qualname__}"},
            elapsed_ns=elapsed_ns,
        )

    return after


def _constructed(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    if _inside:
        return
    kind = type(args[0])
    sites.record(
        "model_create",
        f"{kind.__module__}.{kind.__qualname__}",
        kind.__init__,
        args[1:],
        kwargs,
        detail={"made": f"{kind.__module__}.{kind.__qualname__}"},
    )


def _checkpointing(original: Any, args: Any, kwargs: Any) -> None:
    callee = "transformers.PreTrainedModel.gradient_checkpointing_enable"
    sites.record("checkpoint_enable", callee, original, args[1:], kwargs)


def _config_loaded(original: Any, args: Any, kwargs: Any) -> None:
    kind = args[0]
    callee = f"{kind.__module__}.{kind.__qualname__}.from_pretrained"
    sites.record("config_create", callee, original, args[1:], kwargs, only="direct")
