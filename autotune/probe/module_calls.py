"""One call of one module as the job made it: its inputs, which outputs got gradients, and its autocast."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .core import hook

_PLAIN = (int, float, str, bytes, type(None))


@dataclass
class Wanted:
    """What a replay is given in place of a module's own: inputs, and gradients of its outputs."""

    inputs: dict[str, Any] = field(default_factory=dict)  # place among the arguments -> floating tensor
    leaves: list[str] = field(default_factory=list)  # of them those that need a gradient
    gradients: dict[str, Any] = field(default_factory=dict)  # place among the outputs -> gradient


class Call:
    """The first call of a module that trains. Copies wait in host memory."""

    def __init__(self, module: Any, torch: Any, room: list[int], summary: Callable[[Any], Any]) -> None:
        self.module, self.torch = module, torch
        self.given: tuple[Any, Any] | None = None
        self.leaves: list[str] = []
        self.devices: dict[str, Any] = {}
        self.gradients: dict[str, Any] = {}
        self.seen: dict[str, Any] = {}  # summaries of the outputs
        self.parameters: dict[str, Any] = {}  # whole ones, while it is repeated
        self.dtypes: dict[str, Any] = {}  # of the parameters while it runs: sharding may cast them
        self.cast: tuple[str, bool, Any] = ("cpu", False, None)
        self.why = "not called with gradients in the first micro-batch"
        self.over = False
        self._room, self._summary = room, summary
        self._handles = [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            module.register_forward_hook(self._after),
        ]

    def end(self) -> None:
        """Nothing further is looked at."""
        self.over = True
        for handle in self._handles:
            handle.remove()

    @hook
    def _before(self, module: Any, args: Any, kwargs: Any) -> None:
        torch = self.torch
        if self.over or not torch.is_grad_enabled():
            return
        if any(hasattr(p, "placements") for p in module.parameters()):
            self.why, self.over = "its parameters are spread by tensor parallelism", True
            return
        tensors = dict(flat((args, kwargs), torch))
        size = sum(2 * t.numel() * t.element_size() for t in tensors.values() if t.is_floating_point())
        if size > self._room[0]:
            self.why, self.over = "its inputs are too large to keep", True
            return
        self._room[0] -= size
        self.dtypes = {name: p.dtype for name, p in module.named_parameters()}
        self.leaves = [place for place, t in tensors.items() if t.requires_grad]
        self.devices = {place: t.device for place, t in tensors.items()}
        device = next((t.device.type for t in tensors.values()), "cpu")
        self.cast = (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        self.given = _copied((args, kwargs), torch)

    @hook
    def _after(self, module: Any, args: Any, output: Any) -> Any:
        if self.over or self.given is None:
            return None
        self.over = True  # later micro-batches, and the same one computed again in a backward
        self.why = "no gradient reaches it"
        places = [place for place, value in self.outputs(output).items() if value.requires_grad]

        def watched(place: str, value: Any) -> Any:
            if place not in places:
                return value
            if len(places) > 1:  # one output may come from another, whose gradient is then not the caller's
                value = value.view_as(value)
            self.seen[place] = self._summary(value)
            value.register_hook(self._taker(place))
            return value

        if len(places) == 1:
            watched(places[0], self.outputs(output)[places[0]])
            return None
        if type(output) not in (tuple, list):
            self.why = "it returns several outputs in an object"
            return None
        return _rebuilt(output, "", watched, self.torch, lambda other: other)

    def _taker(self, place: str) -> Callable[[Any], None]:
        @hook
        def take(gradient: Any) -> None:
            if place not in self.gradients:
                self.gradients[place] = gradient.detach().to("cpu", copy=True)

        return take

    def outputs(self, output: Any) -> dict[str, Any]:
        """Floating tensors by place."""
        return {p: t for p, t in flat(output, self.torch) if t.is_floating_point()}

    def missing(self) -> str:
        """Why the call cannot be repeated; empty when it can."""
        return "" if self.given is not None and self.gradients else self.why

    def wanted(self) -> Wanted:
        """What another module of this name is to be given."""
        inputs = {p: t for p, t in flat(self.given, self.torch) if t.is_floating_point()}
        return Wanted(inputs, self.leaves, self.gradients)

    def differs(self, wanted: Wanted) -> str:
        """Why this module cannot be given the inputs of another one; empty when it can.

        Masks may be of another kind; what a gradient flows to may not be.
        """
        own = dict(flat(self.given, self.torch))
        for place in wanted.leaves or wanted.inputs:
            if place not in own:
                return "called with other arguments"
            if own[place].shape != wanted.inputs[place].shape:
                return "called with other shapes"
        return ""

    @contextlib.contextmanager
    def autocast(self, full: bool) -> Iterator[None]:
        """As the job called it, or float32 without TF32."""
        torch = self.torch
        device, enabled, dtype = self.cast
        if not full:
            with torch.autocast(device, dtype=dtype, enabled=True) if enabled else contextlib.nullcontext():
                yield
            return
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.autocast(device, enabled=False):
                yield
        finally:
            torch.set_float32_matmul_precision(precision)

    def arguments(self, wanted: Wanted, cast: Callable[[Any], Any]) -> tuple[Any, Any, dict[str, Any]]:
        """The call's own arguments with the wanted inputs in their places; and its leaves."""
        leaves: dict[str, Any] = {}

        def put(place: str, value: Any) -> Any:
            other = wanted.inputs.get(place)
            if other is not None and other.shape == value.shape and value.is_floating_point():
                value = other.to(value.dtype)
            value = value.to(self.devices[place], copy=True)
            if not value.is_floating_point():
                return value
            value = cast(value)
            if place in wanted.leaves:
                leaves[place] = value.requires_grad_()
                return value.clone()  # the module may change its input in place
            return value

        args, kwargs = _rebuilt(self.given, "", put, self.torch)
        return args, kwargs, leaves


def flat(value: Any, torch: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Tensors by their place in lists, tuples and mappings."""
    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from flat(part, torch, f"{place}.{number}")
    elif hasattr(value, "items"):
        for name, part in value.items():
            yield from flat(part, torch, f"{place}.{name}")


def _copied(value: Any, torch: Any) -> Any:
    return _rebuilt(value, "", lambda place, tensor: tensor.detach().to("cpu", copy=True), torch)


def _rebuilt(
    value: Any,
    place: str,
    put: Callable[[str, Any], Any],
    torch: Any,
    keep: Callable[[Any], Any] = copy.deepcopy,
) -> Any:
    """The same structure with other tensors; objects (caches) are copied, since a call may change them."""
    if isinstance(value, torch.Tensor):
        return put(place, value)
    if type(value) in (list, tuple):
        return type(value)(_rebuilt(v, f"{place}.{n}", put, torch, keep) for n, v in enumerate(value))
    if type(value) is dict:
        return {k: _rebuilt(v, f"{place}.{k}", put, torch, keep) for k, v in value.items()}
    return value if isinstance(value, _PLAIN) else keep(value)
