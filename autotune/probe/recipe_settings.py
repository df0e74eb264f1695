"""Settings of the training for a generated script: optimizer groups, schedule, seed, adapters."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from .wrapping import observe

_PLAIN = (str, int, float, bool)
_DEFAULT_TORCH_SEED = 67280421310721
_USUAL_ADAPTER = {
    "bias": "none", "use_rslora": False, "use_dora": False, "modules_to_save": None, "rank_pattern": {},
    "alpha_pattern": {}, "layers_to_transform": None, "init_lora_weights": True, "fan_in_fan_out": False,
}  # fmt: skip
_schedules: list[tuple[Any, dict[str, Any]]] = []  # weak reference to the optimizer, what its schedule is


def install(torch: Any) -> None:
    """Note every schedule when it is made: by then its values are there, and nothing is kept alive."""
    module = torch.optim.lr_scheduler
    observe(module.LRScheduler, "__init__", after=_made)
    for name in ("SequentialLR", "ChainedScheduler"):  # they do not call the constructor of their base
        if "__init__" in getattr(module, name, type).__dict__:
            observe(getattr(module, name), "__init__", after=_made)


def _made(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    schedule = args[0]
    optimizer = (
        getattr(schedule, "optimizer", None) or getattr(schedule, "_schedulers", [schedule])[0].optimizer
    )
    while hasattr(optimizer, "optimizer"):  # accelerate's and DeepSpeed's wrappers
        optimizer = optimizer.optimizer
    found: dict[str, Any] = {"class_name": type(schedule).__name__, "arguments": _plain(vars(schedule))}
    curves = getattr(schedule, "lr_lambdas", None) or [None]
    if isinstance(curves[0], functools.partial):
        found["function"] = getattr(curves[0].func, "__name__", None)
        found["arguments"] = _plain(curves[0].keywords)
    elif curves[0] is not None:
        found["function"] = getattr(curves[0], "__name__", type(curves[0]).__name__)
        found["arguments"] = {}
    _schedules.append((weakref.ref(optimizer), found))


def schedules_of(optimizer: Any) -> list[dict[str, Any]]:
    return [found for reference, found in _schedules if reference() is optimizer]


def optimizer_settings(optimizer: Any) -> tuple[dict[str, Any], list[str]]:
    """What the groups agree on, and what a script with one AdamW cannot say."""
    groups = [group for group in optimizer.param_groups if group["params"]] or optimizer.param_groups
    main = max(groups, key=lambda group: sum(p.numel() for p in group["params"]))
    found: dict[str, Any] = {"class_name": type(optimizer).__name__}
    odd = []
    rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
    found["lr"] = float(main.get("initial_lr", main["lr"]))
    if len(set(rates)) > 1:
        odd.append(f"learning rates by group: {', '.join(f'{rate:g}' for rate in sorted(set(rates)))}")
    for name in ("eps", "momentum", "amsgrad"):
        if isinstance(main.get(name), (int, float)):
            found[name] = main[name]
    betas = main.get("betas")
    if isinstance(betas, (tuple, list)) and len(betas) == 2:
        found["beta1"], found["beta2"] = (float(beta) for beta in betas)
    decays = {float(group["weight_decay"]) for group in groups if "weight_decay" in group}
    if len(decays) == 1:
        found["weight_decay"] = next(iter(decays))
    elif len(decays) == 2 and min(decays) == 0.0:
        found["weight_decay"] = max(decays)
        without = [p for group in groups if group["weight_decay"] == 0.0 for p in group["params"]]
        found["decay_vectors"] = any(
            p.ndim < 2 for group in groups if group["weight_decay"] for p in group["params"]
        )
        if found["decay_vectors"] or any(p.ndim >= 2 for p in without):
            odd.append("weight decay by group, not by the number of dimensions")
    elif decays:
        odd.append(f"weight decays by group: {', '.join(f'{decay:g}' for decay in sorted(decays))}")
    return found, odd


def seed_of(torch: Any, ours: int | None) -> int | None:
    """The seed the job gave torch last; None where it gave none. `ours`: what the observer gave it before."""
    seed = int(torch.initial_seed())
    return None if seed in (ours, _DEFAULT_TORCH_SEED) or seed >= 2**32 else seed


def adapter_of(model: Any) -> dict[str, Any] | None:
    """The low-rank adapter of a model that peft changed; `odd`: settings that are not the usual ones."""
    for module in model.modules() if model is not None else ():
        configs = module.__dict__.get("peft_config")
        if not isinstance(configs, dict) or not configs:
            continue
        name, config = next(iter(configs.items()))
        if not hasattr(config, "r") or not hasattr(config, "lora_alpha"):
            return {"odd": [type(config).__name__]}
        targets = _targets(module, config.target_modules)
        odd = [
            key
            for key, usual in _USUAL_ADAPTER.items()
            if (getattr(config, key, usual) or None) != (usual or None)
        ]
        if len(configs) > 1:
            odd.append(f"adapters beside {name}")
        return {
            "rank": int(config.r),
            "alpha": float(config.lora_alpha),
            "dropout": float(getattr(config, "lora_dropout", 0.0) or 0.0),
            "target_modules": targets,
            "odd": odd,
        }
    return None


def _targets(model: Any, given: Any) -> list[str] | str:
    """Last parts of the names where these mean the same layers: "all-linear" gives full names."""
    if isinstance(given, str):
        return given
    short = {name.rsplit(".", 1)[-1] for name in given or ()}
    meant = [m for name, m in model.named_modules() if name.rsplit(".", 1)[-1] in short]
    return sorted(short if all(hasattr(m, "lora_A") for m in meant) else given or ())


def _plain(values: Any) -> dict[str, Any]:
    return {name: v for name, v in values.items() if isinstance(v, _PLAIN) and not name.startswith("_")}
