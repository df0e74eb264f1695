"""Each rank's own gradient before it is reduced over the ranks: the reduced one must be their mean (or sum).

Sketches are sums over elements, so those of all micro-batches and ranks add up to the sketch of what one rank
would have computed from all of them. Nothing is sent between ranks here, and no gradient is kept.
"""

from __future__ import annotations

from typing import Any

from .parity_weights import BUCKETS, Piece, plain_name, sketch_sums


class Contributions:
    """Adds up what the backward hands to each parameter, before DDP or FSDP2 reduces it."""

    def __init__(self, torch: Any, model: Any) -> None:
        self.torch = torch
        self.unknown = ""
        self.sums: dict[str, Any] = {}
        self._handles: list[Any] = []
        self._hooked: set[int] = set()
        self._sharded = False
        self._met = True  # sharded parameters show themselves in the forward only
        kinds = {kind.__name__ for module in model.modules() for kind in type(module).__mro__}
        if kinds & {"FullyShardedDataParallel", "DeepSpeedEngine"}:
            self.unknown = "FSDP1 and DeepSpeed do not show the gradient of one rank"
            return
        self._names = {id(module): name for name, module in model.named_modules()}
        units = [m for m in model.modules() if any(k.__name__ == "FSDPModule" for k in type(m).__mro__)]
        self._sharded = bool(units)
        self._met = not units
        for unit in units:  # behind FSDP's own hook, which puts the whole parameters in their places
            self._handles.append(unit.register_forward_pre_hook(self._unsharded))
        self._hook_all(model, "")

    def _unsharded(self, unit: Any, args: Any) -> None:
        if self.torch.compiler.is_compiling():
            return  # inside a graph there is nothing to hold on to: these parameters stay unseen
        self._met = True
        self._hook_all(unit, self._names.get(id(unit), ""))

    def _hook_all(self, module: Any, prefix: str) -> None:
        for name, parameter in module.named_parameters(prefix=prefix):
            if parameter.requires_grad and id(parameter) not in self._hooked and not _distributed(parameter):
                self._hooked.add(id(parameter))
                self._handles.append(parameter.register_hook(self._adding(plain_name(name))))

    def _adding(self, name: str) -> Any:
        def add(gradient: Any) -> None:
            try:
                if _distributed(gradient):
                    self.unknown = "gradients are spread by tensor parallelism"
                    return
                with self.torch.no_grad():
                    value = gradient.to_dense() if gradient.is_sparse else gradient
                    piece = Piece(value, tuple(value.shape), (0,) * value.dim())
                    sums = sketch_sums(name, piece, BUCKETS, self.torch)[1:]
                    known = self.sums.get(name)
                    self.sums[name] = sums if known is None else known + sums
            except Exception as exception:
                self.unknown = f"{type(exception).__name__}: {exception}"[:200]

        return add

    def take(self) -> dict[str, list[float]]:
        """The sums of the step that has ended; the next one begins."""
        sums, self.sums = self.sums, {}
        whole, self._met = self._met, not self._sharded
        if self.unknown or not whole:
            return {}
        return {name: value.tolist() for name, value in sums.items()}

    def end(self) -> None:
        """Nothing further is asked for."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _distributed(value: Any) -> bool:
    return hasattr(value, "placements") and hasattr(value, "to_local")
