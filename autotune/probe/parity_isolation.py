"""Does one example of a packed row change what the model says about the others?

The job's own call is repeated with one example replaced by noise. In a right packing the logits of all other
examples stay equal; earlier ones by causality, later ones by the boundaries. All ranks run the same number of
forwards, because sharded models communicate inside them.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from .parity_examples import Layout, Span, inner
from .parity_gradient import gradient_change

_GOOD_ROW = 3  # examples: one is replaced, one lies before it, one after it
_LEAST_ROW = 2  # enough from the second micro-batch on
_ALL_RANKS_CALLS = 3  # micro-batches to wait for a packed row on every rank; then one rank is enough
_WAIT_CALLS = 8  # and to wait at all
_CPU_ELEMENTS = 1 << 29  # logits larger than this wait in host memory
_SOURCES = ("logits", "without labels", "hidden states")
_ROWS = 256  # positions compared at a time


class Isolation:
    """Runs once, at the first micro-batch with a row of several examples."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.done = False
        self.calls = 0

    def consider(self, module: Any, args: Any, kwargs: Any, layout: Layout) -> dict[str, Any] | None:
        """The fields of an IsolationRecord, or {"isolation_error": ...}; None when it did not run now."""
        self.calls += 1
        row = packed_row(layout, _GOOD_ROW if self.calls == 1 else _LEAST_ROW)
        if not self._together(row is not None):
            self.done = self.done or self.calls >= _WAIT_CALLS
            return None
        self.done = True
        try:
            return self._run(module, args, kwargs, layout, row)
        except Exception as exception:
            return {"isolation_error": f"{type(exception).__name__}: {exception}"[:300]}

    def _together(self, ready: bool) -> bool:
        """Whether every rank has a packed row; after a while, whether any has."""
        distributed = self.torch.distributed
        if not distributed.is_available() or not distributed.is_initialized():
            return ready
        if distributed.get_world_size() == 1:
            return ready
        device = "cuda" if "nccl" in str(distributed.get_backend()) else "cpu"
        flag = self.torch.tensor([int(ready)], device=device)
        late = self.calls >= _ALL_RANKS_CALLS
        distributed.all_reduce(flag, op=distributed.ReduceOp.MAX if late else distributed.ReduceOp.MIN)
        return bool(flag.item())

    def _run(
        self, module: Any, args: Any, kwargs: Any, layout: Layout, row: list[Span] | None
    ) -> dict[str, Any] | None:
        torch = self.torch
        keeper = Keeper(module, torch)
        try:
            base, how = None, ""
            for how in _SOURCES:  # a fused loss returns no logits while labels are given
                base = self._outputs(module, args, kwargs, keeper, how)
                if base is not None:
                    break
            if base is None:
                raise RuntimeError("the model returns neither logits nor hidden states")
            base = self._parked(base)
            again = self._outputs(module, args, kwargs, keeper, how)
            repeat = float(self._changes(base, again).max())
            del again
            if row is None:
                self._outputs(module, args, kwargs, keeper, how)
                return None
            chosen = row[(len(row) - 1) // 2]  # another one lies behind it
            keeper.rewind()
            backward = gradient_change(module, args, kwargs, layout, chosen, torch)
            args, kwargs = self._with_noise(args, kwargs, layout, chosen)
            changes = self._changes(base, self._outputs(module, args, kwargs, keeper, how))
        finally:
            keeper.restore()
        scale = float(base.abs().max()) or 1.0
        first = chosen.begin - chosen.begin % layout.width
        before, after = changes[first : chosen.begin], changes[chosen.end :]
        elsewhere = changes[:first]
        later = [part.max() for part in (after, elsewhere) if part.numel()]
        return {
            "examples": len(row),
            "before_change_frac": float(before.max()) / scale if before.numel() else 0.0,
            "after_change_frac": max(float(v) for v in later) / scale if later else 0.0,
            "repeat_change_frac": repeat / scale,
            **backward,
        }

    def _outputs(self, module: Any, args: Any, kwargs: Any, keeper: Keeper, how: str) -> Any:
        """One forward as the job calls it; its logits or last hidden states as (positions, features)."""
        captured: list[Any] = []
        handle = None
        if how == "without labels":
            kwargs = {k: v for k, v in kwargs.items() if k not in ("labels", "shift_labels")}
        elif how == "hidden states":
            body = body_of(module)
            if body is None:
                return None
            handle = body.register_forward_hook(lambda module, args, output: captured.append(output))
        keeper.rewind()
        try:
            with self.torch.no_grad():
                output = module(*args, **kwargs)
        except Exception:
            if how == "without labels":
                return None  # a loss that cannot do without them; the same on every rank
            raise
        finally:
            if handle is not None:
                handle.remove()
        if how == "hidden states":
            output = captured[-1] if captured else None
            output = getattr(output, "last_hidden_state", output)
        found = logits_of(output, self.torch)
        if found is None:
            return None
        full = getattr(found, "full_tensor", None)
        found = full() if full is not None else found
        return found.detach().reshape(-1, found.shape[-1])

    def _parked(self, logits: Any) -> Any:
        return logits.cpu() if logits.numel() > _CPU_ELEMENTS else logits.clone()

    def _changes(self, base: Any, other: Any) -> Any:
        """Largest absolute change at each position."""
        found = []
        for at in range(0, base.shape[0], _ROWS):
            left = base[at : at + _ROWS].to(other.device)
            change = (other[at : at + _ROWS].float() - left.float()).abs().amax(dim=-1)
            found.append(self.torch.nan_to_num(change, nan=float("inf")).cpu())
        return self.torch.cat(found)

    def _with_noise(self, args: Any, kwargs: Any, layout: Layout, span: Span) -> tuple[Any, Any]:
        """The call with every token of one example replaced by another token of the batch's vocabulary."""
        holder, key = _find(args, kwargs, layout.ids or "", layout.width, self.torch)
        ids = holder[key].clone()
        flat = ids.reshape(-1)
        known = sorted(set(flat.tolist()))
        draw = random.Random(0)
        noise = []
        for token in flat[span.begin : span.end].tolist():
            others = [draw.choice(known) for _ in range(8)]
            noise.append(next((t for t in others if t != token), max(0, token - 1) if token else 1))
        flat[span.begin : span.end] = self.torch.tensor(noise, dtype=flat.dtype, device=flat.device)
        replaced = flat.reshape(ids.shape)
        if holder is kwargs:
            return args, {**kwargs, key: replaced}
        if isinstance(holder, list):
            return tuple(replaced if n == key else value for n, value in enumerate(args)), kwargs
        position = next(n for n, value in enumerate(args) if value is holder)
        mapping = {**holder, key: replaced}
        return tuple(mapping if n == position else value for n, value in enumerate(args)), kwargs


def packed_row(layout: Layout, least: int) -> list[Span] | None:
    """The examples of the first row that holds enough of them."""
    if not layout.width or not layout.spans:
        return None
    for spans in layout.packed_rows().values():
        if len(spans) >= least:
            return spans
    return None


def logits_of(output: Any, torch: Any) -> Any:
    """Logits of a model's output: by name, or the floating tensor with a vocabulary axis."""
    found = getattr(output, "logits", None)
    if found is None and isinstance(output, dict):
        found = output.get("logits")
    if found is None and isinstance(output, torch.Tensor):
        output = (output,)
    if found is None and isinstance(output, (tuple, list)):
        found = next(
            (v for v in output if isinstance(v, torch.Tensor) and v.is_floating_point() and v.dim() >= 2),
            None,
        )
    return found if isinstance(found, torch.Tensor) and found.dim() >= 2 else None


def body_of(module: Any) -> Any:
    """The model below the output layer."""
    inside = inner(module)
    for name in ("base_model", "model", "transformer", "backbone"):
        found = getattr(inside, name, None)
        if found is not None and found is not inside and hasattr(found, "register_forward_hook"):
            return found
    return None


def _find(args: Any, kwargs: Any, name: str, width: int, torch: Any) -> tuple[Any, Any]:
    """Where the token ids are among the arguments: (kwargs or a mapping, key), or (list, position)."""
    if isinstance(kwargs.get(name), torch.Tensor):
        return kwargs, name
    for value in args:
        if hasattr(value, "keys") and name in value:
            return value, name
    for position, value in enumerate(args):
        whole = isinstance(value, torch.Tensor) and str(value.dtype) in ("torch.int64", "torch.int32")
        if whole and value.shape[-1] == width:
            return list(args), position
    raise RuntimeError("the token ids were not found among the call's arguments")


class Keeper:
    """Puts back what extra forwards change: random states and buffers."""

    def __init__(self, module: Any, torch: Any) -> None:
        self.torch = torch
        self.buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        self.python = random.getstate()
        numpy = sys.modules.get("numpy")
        self.numpy = numpy.random.get_state() if numpy is not None else None
        self.cpu = torch.get_rng_state()
        self.cuda = (
            torch.cuda.get_rng_state_all()
            if torch.cuda.is_available() and torch.cuda.is_initialized()
            else []
        )

    def rewind(self) -> None:
        """Every forward draws the same random numbers."""
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        self.torch.set_rng_state(self.cpu)
        if self.cuda:
            self.torch.cuda.set_rng_state_all(self.cuda)

    def restore(self) -> None:
        self.rewind()
        with self.torch.no_grad():
            for buffer, value in self.buffers:
                buffer.copy_(value)
