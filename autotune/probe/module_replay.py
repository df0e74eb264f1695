"""One forward and backward of one module with given inputs and gradients, beside the running job.

No parameter, gradient, buffer or random number of the job is changed: the module computes with copies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .module_calls import Call, Wanted
from .parity_isolation import Keeper
from .parity_weights import Piece, plain_name, sketch_sums

ONE_UNIT = {"FSDPModule"}  # may be repeated itself: its hooks are left out, its parameters are put together
_BUCKETS = 4093  # an error is known to about two percent of itself


def replay(call: Call, wanted: Wanted, torch: Any, *, full: bool) -> dict[str, Any]:
    """Sketches of the outputs and of all gradients; `full`: in float32."""
    module = call.module
    half = (torch.float16, torch.bfloat16)

    def cast(value: Any) -> Any:
        return value.float() if full and value.dtype in half else value

    parameters = {}
    for name, value in call.parameters.items():
        copied = cast(value.detach() if full else value.detach().to(call.dtypes[name]))
        parameters[name] = copied.requires_grad_(value.requires_grad)
    buffers = {name: cast(b.detach().clone()) for name, b in module.named_buffers()}

    def forward_and_backward() -> tuple[Any, ...]:
        args, kwargs, leaves = call.arguments(wanted, cast)
        with torch.enable_grad(), call.autocast(full):
            outputs = call.outputs(module(*args, **kwargs))
        ends = [outputs.get(place) for place in wanted.gradients]
        if any(end is None for end in ends):
            raise RuntimeError("the module returns other outputs")
        given = [
            gradient.to(end.device, end.dtype).reshape(end.shape)
            for end, gradient in zip(ends, wanted.gradients.values())  # noqa: B905
        ]
        asked = {("input", name): leaf for name, leaf in leaves.items()}
        asked.update({("parameter", name): p for name, p in parameters.items() if p.requires_grad})
        found = torch.autograd.grad(ends, list(asked.values()), given, allow_unused=True)
        return ends, given, asked, found

    keeper = Keeper(module, torch)
    keeper.rewind()
    try:
        with _without_sharding(module):
            values = {**parameters, **buffers}
            ends, given, asked, found = _with_values(module, values, forward_and_backward, torch)
    finally:
        keeper.restore()
    result: dict[str, Any] = {"whole": {}, "output": {}, "input": {}, "parameter": {}}
    with torch.no_grad():
        for place, end, gradient in zip(wanted.gradients, ends, given):  # noqa: B905
            result["whole"][place] = sketch(end, torch)
            # Rows without a gradient, like those of padding, train nothing.
            rows = (gradient != 0).any(-1, keepdim=True) if end.dim() else gradient != 0
            result["output"][place] = sketch(torch.where(rows, end, torch.zeros_like(end)), torch)
        for (kind, name), value in zip(asked, found):  # noqa: B905
            if value is not None:
                result[kind][plain_name(name)] = sketch(value, torch)
    return result


def sketch(value: Any, torch: Any) -> Any:
    """[norm, buckets] of a tensor; that of a difference is the difference of the buckets."""
    value = value.detach()
    sums = sketch_sums("", Piece(value, tuple(value.shape), (0,) * value.dim()), _BUCKETS, torch).cpu()
    sums[0] = sums[0].clamp(min=0).sqrt()
    return sums


def _with_values(module: Any, values: dict[str, Any], run: Callable[[], Any], torch: Any) -> Any:
    """`run()` while the module holds other values: also in a backward that computes a forward again."""

    class Holder(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.held = module

        def forward(self) -> Any:
            return run()

    given = {f"held.{name}": value for name, value in values.items()}
    return torch.func.functional_call(Holder(), given, ())


@contextlib.contextmanager
def _without_sharding(module: Any) -> Iterator[None]:
    """A sharded unit runs its forward alone: what its hooks gather and free is not what is replayed."""
    names = ("_forward_pre_hooks", "_forward_hooks")
    before = [getattr(module, name) for name in names]
    sharded = any(kind.__name__ in ONE_UNIT for kind in type(module).__mro__)
    try:
        for name, hooks in zip(names, before):  # noqa: B905
            setattr(module, name, type(hooks)() if sharded else hooks)
        yield
    finally:
        for name, hooks in zip(names, before):  # noqa: B905
            setattr(module, name, hooks)
