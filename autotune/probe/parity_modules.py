"""Single modules on captured inputs: forward and backward beside float32, at the sizes the job has.

The unchanged job keeps what one module of each kind is called with in its first micro-batch, and sketches of
what float32 makes of it. The changed job runs its own module of that name on the same inputs. Both report how
far their module is from float32. One module in float32 fits where the whole job does not.
"""

from __future__ import annotations

import os
import re
from typing import Any

from .module_calls import Call, Wanted
from .module_replay import ONE_UNIT, replay, sketch
from .parity_weights import plain_name

_MOST_BYTES = 1 << 29  # captured inputs of all modules together
_MOST_KINDS = 24
_NEGLIGIBLE = 1e-3  # of the module's median gradient: what a smaller one is measured against
_REPEATS = 0.02  # how far a repeated call may be from the job's own
_LIBRARY = {"Linear", "Embedding", "Identity", "ModuleList", "Sequential", "ModuleDict", "ParameterList"}
_SHARDED = {"FSDPModule", "FullyShardedDataParallel", "DeepSpeedEngine"}
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


class Modules:
    """Made before the first forward; `finish` is called before the first update of the weights.

    Sharded parameters are put together by all ranks, so all have one; the first rank (`works`) does the rest.
    """

    def __init__(self, torch: Any, model: Any, path: str, *, keep: bool, works: bool) -> None:
        self.torch, self.path, self.keep = torch, path, keep
        self.known: dict[str, Any] = {}
        self.why = ""
        self.chosen: dict[str, Any] = {}
        self.calls: dict[str, Call] = {}
        if any(_compiled(part) for part in model.modules()):
            self.why = "the model is compiled"
        else:
            self.chosen = _one_of_each_kind(model)
        if not works:
            return
        if not keep and not self.why:
            self.known, self.why = _read(path, torch)
        room = [_MOST_BYTES]
        self.calls = {
            name: Call(module, torch, room, lambda value: sketch(value, torch))
            for name, module in self.chosen.items()
        }

    def finish(self) -> list[dict[str, Any]]:
        """One record for each module."""
        kept: dict[str, Any] = {}
        found = []
        for name, module in self.chosen.items():
            whole = {n: _whole(p) for n, p in module.named_parameters() if p.is_floating_point()}
            call = self.calls.get(name)
            if call is None or self.why:
                continue
            call.end()
            call.parameters = whole
            record = {"name": name, "kind": type(module).__name__}
            try:
                told = self._kept(name, call, kept) if self.keep else self._compared(name, call)
            except Exception as exception:
                told = {"unknown": f"{type(exception).__name__}: {exception}".split("\n")[0][:200]}
            call.parameters = {}
            found.append({**record, **told})
        if self.why:
            return [{"name": "", "unknown": self.why}]
        if self.keep and kept:
            try:
                self._write(kept)
            except OSError as fault:  # a full disk: nothing to compare with later
                found.append({"name": "", "unknown": f"the inputs could not be kept ({fault.strerror})"})
        return found

    def _kept(self, name: str, call: Call, kept: dict[str, Any]) -> dict[str, Any]:
        """The module of the unchanged job."""
        if why := call.missing():
            return {"unknown": why}
        wanted = call.wanted()
        exact = replay(call, wanted, self.torch, full=True)
        own = replay(call, wanted, self.torch, full=False)
        for place, values in own["whole"].items():
            if _apart(call.seen[place], values) > _REPEATS:
                return {"unknown": "a repeated call gives another output"}
        del exact["whole"]
        kept[name] = {"wanted": vars(wanted), "exact": exact}
        return _errors(own, exact)

    def _compared(self, name: str, call: Call) -> dict[str, Any]:
        """The module of the changed job on the inputs of the unchanged one."""
        if why := call.missing():
            return {"unknown": why}
        if name not in self.known:
            return {"unknown": "the unchanged job kept none of that name"}
        wanted = Wanted(**self.known[name]["wanted"])
        if why := call.differs(wanted):
            return {"unknown": why}
        return _errors(replay(call, wanted, self.torch, full=False), self.known[name]["exact"])

    def _write(self, kept: dict[str, Any]) -> None:
        """In one go: another start must not read half of it."""
        half = f"{self.path}.part"
        with open(half, "wb") as file:
            self.torch.save(kept, file)
        os.replace(half, self.path)


def _apart(exact: Any, other: Any, least: float = 0.0) -> float:
    """Relative to `exact`."""
    off, scale = float((exact[1:] - other[1:]).norm()), max(float(exact[0]), least)
    return off / scale if scale else float(off > 0)


def _errors(own: dict[str, Any], exact: dict[str, Any]) -> dict[str, Any]:
    """Relative errors; the largest of several outputs and of several inputs."""
    sizes = sorted(float(values[0]) for values in exact["parameter"].values() if values[0] > 0)
    least = _NEGLIGIBLE * sizes[len(sizes) // 2] if sizes else 0.0
    parts = {}
    for kind in ("output", "input"):
        if any(place not in own[kind] for place in exact[kind]):
            return {"unknown": "no gradient reaches an input"}
        errors = [_apart(values, own[kind][place]) for place, values in exact[kind].items()]
        parts[f"{kind}_error_frac"] = max(errors) if errors else None
    names = [name for name in exact["parameter"] if name in own["parameter"]]
    errors_of = {n: _apart(exact["parameter"][n], own["parameter"][n], least) for n in names}
    return {**parts, "parameter_error_frac": errors_of}


def _one_of_each_kind(model: Any) -> dict[str, Any]:
    """The first module of each kind that computes something of its own, the innermost first."""
    whole = sum(p.numel() for p in model.parameters())
    found: dict[str, Any] = {}
    kinds = set()
    for name, module in model.named_modules():
        classes = {k.__name__ for part in module.modules() if part is not module for k in type(part).__mro__}
        classes |= {k.__name__ for k in type(module).__mro__} - ONE_UNIT
        size = sum(p.numel() for p in module.parameters())
        kind = (_NUMBER.sub("*", plain_name(name)), type(module).__name__)
        if type(module).__name__ in _LIBRARY or kind in kinds or not size or 2 * size > whole:
            continue
        if classes & _SHARDED:
            continue
        kinds.add(kind)
        found[plain_name(name)] = module
    deepest = sorted(found, key=lambda name: -name.count("."))[:_MOST_KINDS]
    return {name: found[name] for name in deepest}


def _read(path: str, torch: Any) -> tuple[dict[str, Any], str]:
    """What the unchanged job kept, or why there is nothing."""
    if not os.path.isfile(path):
        return {}, "the unchanged job kept no inputs of modules"
    try:
        return torch.load(path, map_location="cpu", weights_only=True), ""
    except Exception as exception:
        return {}, f"the inputs the unchanged job kept cannot be read ({type(exception).__name__})"


def _whole(parameter: Any) -> Any:
    """A sharded parameter put together; all ranks do this together."""
    if not hasattr(parameter, "placements"):
        return parameter
    return parameter.detach().full_tensor().requires_grad_(parameter.requires_grad)


def _compiled(module: Any) -> bool:
    """Inside a graph no single module is called."""
    return (
        type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
    )
