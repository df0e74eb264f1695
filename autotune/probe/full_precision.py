"""The job in full float32: what half-precision arithmetic of a rerun is judged against.

Autocast is off, the mixed-precision policies of sharding have no half types, half parameters and buffers are
widened in place (the optimizer goes on holding them), TF32 is off, and nothing is compiled. The values the
job starts from stay those of the job: a half number is exact in float32.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from . import finder, models
from .core import core, hook

_MOST_NAMES = 8


class FullPrecision:
    """Made before the job's own code runs; `left` tells what still computed in half precision."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.half = (torch.float16, torch.bfloat16)
        self.left: list[str] = []
        self.widened = 0
        os.environ["TORCH_COMPILE_DISABLE"] = os.environ["TORCHDYNAMO_DISABLE"] = "1"
        self.exact_products()
        _without_autocast(torch)
        torch.set_float32_matmul_precision = lambda precision: None
        finder.when_imported("torch.distributed.fsdp", self._sharding)
        finder.when_imported("torch.distributed._composable.fsdp", self._sharding)
        self._wrap(torch.nn.parallel.DistributedDataParallel)
        module = sys.modules["torch.nn.modules.module"]
        self._handles = [
            module.register_module_forward_pre_hook(self._before_call),
            module.register_module_forward_hook(self._after_call),
        ]

    def exact_products(self) -> None:
        """No TF32; called again before the first step, because scripts switch it on at their top."""
        torch = self.torch
        torch._C._set_float32_matmul_precision("highest")
        for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
            try:
                backend.allow_tf32 = False
            except RuntimeError:  # set through the newer names, which do not mix with this one
                backend.fp32_precision = "ieee"

    # --- parameters

    def widen(self, module: Any, recurse: bool = True) -> None:
        """Half parameters and buffers to float32, the objects kept."""
        torch = self.torch
        for part in module.modules() if recurse else (module,):
            moved = False
            for parameter in part._parameters.values():
                if parameter is None or parameter.dtype not in self.half or parameter.device.type == "meta":
                    continue
                self.widened += 1
                if hasattr(parameter, "placements"):
                    moved = True
                    continue
                parameter.data = parameter.data.float()
                if parameter.grad is not None:
                    parameter.grad = parameter.grad.float()
            if moved:  # sharded already: the module knows how to take the new parameter
                with torch.no_grad():
                    part._apply(lambda t: t.float() if t.dtype in self.half else t, recurse=False)
            for name, buffer in part._buffers.items():
                if buffer is not None and buffer.dtype in self.half and buffer.device.type != "meta":
                    part._buffers[name] = buffer.float()
            if getattr(part, "compute_dtype", None) in self.half:
                part.compute_dtype = torch.float32

    def _wrap(self, kind: Any) -> None:
        """Widen before a wrapper makes its buckets or flat parameters."""
        original = kind.__init__

        @functools.wraps(original)
        def init(wrapper: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            self.widen(module)
            if kind.__name__ == "DistributedDataParallel":
                kwargs.pop("mixed_precision", None)
            original(wrapper, module, *args, **kwargs)

        kind.__init__ = init

    def _sharding(self, package: Any) -> None:
        """FSDP, both generations."""
        for name in ("MixedPrecisionPolicy", "MixedPrecision"):
            policy = getattr(package, name, None)
            if policy is not None and not hasattr(policy, "_autotune_full"):
                policy._autotune_full = True
                _without_half_fields(policy, self.half)
        old = getattr(package, "FullyShardedDataParallel", None)
        if old is not None:
            self._wrap(old)
        original = getattr(package, "fully_shard", None)
        if original is None or hasattr(original, "_autotune_full"):
            return

        @functools.wraps(original)
        def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
            for part in module if isinstance(module, (list, tuple)) else (module,):
                self.widen(part)
            return original(module, *args, **kwargs)

        fully_shard._autotune_full = True  # type: ignore[attr-defined]
        package.fully_shard = fully_shard

    # --- what runs

    def _before_call(self, module: Any, args: Any) -> Any:
        if not self.torch.is_grad_enabled():
            return None
        self._find(module)
        changed = tuple(self._widened_input(module, value) for value in args)
        return changed if any(a is not b for a, b in zip(changed, args)) else None  # noqa: B905

    @hook
    def _find(self, module: Any) -> None:
        """A job without a DataLoader is met here first."""
        if models.optimizers():
            models.before_training(self.torch, at_backward=True)
        if any(p is not None and p.dtype in self.half for p in module._parameters.values()):
            self.widen(module, recurse=False)

    def _widened_input(self, module: Any, value: Any) -> Any:
        if not isinstance(value, self.torch.Tensor) or value.dtype not in self.half:
            return value
        if value.requires_grad:
            self._note(f"the input of {type(module).__name__}")
        return value.float()

    def _after_call(self, module: Any, args: Any, output: Any) -> None:
        values = output if isinstance(output, (tuple, list)) else (output,)
        if any(isinstance(v, self.torch.Tensor) and v.requires_grad and v.dtype in self.half for v in values):
            self._note(type(module).__name__)

    def _note(self, name: str) -> None:
        if name not in self.left and len(self.left) < _MOST_NAMES:
            self.left.append(name)

    def gradients(self, named: list[tuple[str, Any]]) -> None:
        """Gradients in half precision come from half arithmetic."""
        for name, parameter in named:
            if parameter.grad is not None and parameter.grad.dtype in self.half:
                self._note(f"the gradient of {name}")

    def first_step_over(self) -> list[str]:
        """What computed in half precision or TF32 all the same."""
        for handle in self._handles:
            handle.remove()
        if self.torch.cuda.is_initialized() and self.torch.get_float32_matmul_precision() != "highest":
            self._note("TF32 products")
        return self.left


def _without_autocast(torch: Any) -> None:
    kind = torch.amp.autocast_mode.autocast
    original = kind.__init__

    @functools.wraps(original)
    def init(context: Any, *args: Any, **kwargs: Any) -> None:
        original(context, *args, **kwargs)
        context._enabled = False

    kind.__init__ = init
    switch = torch.set_autocast_enabled

    def set_autocast_enabled(*args: Any) -> Any:
        return switch(*args[:-1], False)

    torch.set_autocast_enabled = set_autocast_enabled


def _without_half_fields(policy: Any, half: tuple[Any, ...]) -> None:
    """Instances of a frozen dataclass lose their half types."""
    original = policy.__init__

    @functools.wraps(original)
    def init(instance: Any, *args: Any, **kwargs: Any) -> None:
        original(instance, *args, **kwargs)
        for name, value in list(vars(instance).items()):
            if value in half:
                object.__setattr__(instance, name, None)

    policy.__init__ = init


def watch_autocast(torch: Any) -> list[str]:
    """The half types autocast is entered with while training, also inside the model; filled when met."""
    found: list[str] = []
    kind = torch.amp.autocast_mode.autocast
    original = kind.__enter__

    @functools.wraps(original)
    def enter(context: Any) -> Any:
        result = original(context)
        half = str(getattr(context, "fast_dtype", "")) in ("torch.bfloat16", "torch.float16")
        if core.active and half and context._enabled and torch.is_grad_enabled():
            name = f"autocast {str(context.fast_dtype).removeprefix('torch.')}"
            if name not in found:
                found.append(name)
        return result

    kind.__enter__ = enter
    return found
