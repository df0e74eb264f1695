"""How parameters and gradients are spread over the ranks, and gradient reductions per optimizer step."""

from __future__ import annotations

from typing import Any

from . import models
from .core import core

_syncs = 0
_steps = 0
_samples: dict[int, dict[str, Any]] = {}  # DDP module -> values of its buffers after the first step
_sampled_at = 0  # steps that had ended then
_MOST_VALUES = 65536  # of a buffer that are compared
_FEWEST_STEPS = 3  # in which a buffer must stay as it is
_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def collect(root: Any) -> dict[str, Any]:
    """Fields of ShardingRecord."""
    modules = list(root.modules()) if root is not None else []
    found: dict[str, Any] = {"kind": "none"}
    if any(
        type(m).__module__.startswith("deepspeed") and type(m).__name__.endswith("Engine") for m in modules
    ):
        found = {"kind": "deepspeed"}
    else:
        sharded = [m for m in modules if any(k.__name__ == "FSDPModule" for k in type(m).__mro__)]
        old = [m for m in modules if type(m).__name__ == "FullyShardedDataParallel"]
        ddp = [m for m in modules if type(m).__name__ == "DistributedDataParallel"]
        if sharded:
            found = _fsdp2(sharded)
        elif old:
            found = _fsdp1(old)
        elif ddp:
            found = {"kind": "ddp", "units": len(ddp), "mesh": [_world()], **_broadcast(ddp)}
    if _steps:
        found["gradient_syncs_per_step"] = round(_syncs / _steps, 3)
    return found


def _broadcast(wrappers: list[Any]) -> dict[str, Any]:
    """What DDP sends from rank 0 in every forward for nothing, beside the gradients of a backward.

    Buffers that change (batch norm's statistics, a codebook) have to be sent, and are only counted. Values
    decide: the sending itself writes to the buffers, so their versions do not tell.
    """
    constant = changed = gradients = 0
    known = True
    for wrapper in wrappers:
        gradients += sum(p.numel() * p.element_size() for p in wrapper.parameters() if p.requires_grad)
        if not getattr(wrapper, "broadcast_buffers", False):
            continue
        before = _samples.get(id(wrapper), {})
        for name, buffer in _buffers(wrapper).items():
            if name not in before:
                known = False
            elif _same(before[name], _sample(buffer)):
                constant += buffer.numel() * buffer.element_size()
            else:
                changed += 1
    if not known or ((changed or constant) and _steps - _sampled_at < _FEWEST_STEPS):
        return {"gradient_bytes": gradients}
    return {"broadcast_bytes": constant, "changed_buffers": changed, "gradient_bytes": gradients}


def _buffers(wrapper: Any) -> dict[str, Any]:
    ignored = getattr(wrapper, "parameters_to_ignore", ())
    return {name: b for name, b in wrapper.module.named_buffers() if name not in ignored}


def _sample(buffer: Any) -> Any:
    """Values spread over the buffer, on its device."""
    flat = buffer.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _MOST_VALUES) | 1].clone()


def _same(one: Any, other: Any) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())


def _take_samples() -> None:
    """Of the buffers that DDP sends, once, after the first step."""
    global _sampled_at
    _sampled_at = _steps
    root = models.root()
    for module in root.modules() if root is not None else ():
        if type(module).__name__ == "DistributedDataParallel" and getattr(module, "broadcast_buffers", False):
            _samples[id(module)] = {name: _sample(buffer) for name, buffer in _buffers(module).items()}


def _world() -> int:
    return core.rank.world_size if core.rank is not None else 1


def dtype_name(dtype: Any) -> str | None:
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    return _NAMES.get(name, name)


def _fsdp2(units: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "fsdp2", "units": len(units)}
    for unit in units:
        state = unit._get_fsdp_state()
        policy = getattr(state, "_mp_policy", None)
        group = getattr(state, "_fsdp_param_group", None)
        if policy is not None and "param_dtype" not in found:
            found["param_dtype"] = dtype_name(getattr(policy, "param_dtype", None))
            found["reduce_dtype"] = dtype_name(getattr(policy, "reduce_dtype", None))
        if group is not None and "mesh" not in found:
            found["mesh"] = [int(n) for n in group.mesh_info.mesh.shape]
    # the root keeps its parameters by default, so the blocks tell how the job is set up
    reshard = [
        getattr(group, "post_forward_mesh_info", None) is not None
        for unit in (units[1:] or units)
        if (group := getattr(unit._get_fsdp_state(), "_fsdp_param_group", None)) is not None
    ]
    if reshard:
        found["reshard_after_forward"] = sum(reshard) * 2 > len(reshard)
    return found


def _fsdp1(units: list[Any]) -> dict[str, Any]:
    first = units[0]
    policy = getattr(first, "mixed_precision", None)
    strategy = str(getattr(first, "sharding_strategy", ""))
    return {
        "kind": "fsdp1",
        "units": len(units),
        "param_dtype": dtype_name(getattr(policy, "param_dtype", None)),
        "reduce_dtype": dtype_name(getattr(policy, "reduce_dtype", None)),
        "reshard_after_forward": None
        if not strategy
        else "FULL_SHARD" in strategy or "HYBRID_SHARD" in strategy,
        "mesh": [_world()],
    }


def backward_begins() -> None:
    """Count this backward when it will reduce gradients over ranks."""
    global _syncs
    root = models.root()
    if root is None or _world() == 1:
        return
    wants = getattr(root, "require_backward_grad_sync", None)
    if wants is None:
        wants = getattr(root, "_sync_gradients", None)
    if wants is None and hasattr(root, "_get_fsdp_state"):
        group = getattr(root._get_fsdp_state(), "_fsdp_param_group", None)
        wants = getattr(group, "reduce_grads", True)
    _syncs += wants is not False


def step_ended() -> None:
    global _steps
    _steps += 1
    if not _sampled_at:
        _take_samples()
