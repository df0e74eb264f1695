"""The isolation test of the backward: no gradient of one example's outputs reaches the tokens of another.

A fused kernel can keep packed examples apart in its forward and mix them in its backward. The job's own call
is repeated with gradients; the outputs of all examples but one are summed with fixed weights, and the
gradient of that sum for the input embeddings must be zero at the tokens of the one left out.
"""

from __future__ import annotations

from typing import Any

from .parity_examples import Layout, Span, inner


class _Unknown(Exception):
    """The test cannot be made on this model."""


def gradient_change(
    module: Any, args: Any, kwargs: Any, layout: Layout, chosen: Span, torch: Any
) -> dict[str, Any]:
    """`gradient_change_frac`, of the largest gradient of any token; or `gradient_unknown`, why there is none.

    Only intermediate gradients are asked for, so no parameter's gradient and no reduction is touched.
    """
    try:
        return {"gradient_change_frac": _leak(module, args, kwargs, layout, chosen, torch)}
    except _Unknown as reason:
        return {"gradient_unknown": str(reason)}
    except Exception as exception:
        return {"gradient_unknown": f"{type(exception).__name__}: {exception}"[:300]}


def _leak(module: Any, args: Any, kwargs: Any, layout: Layout, chosen: Span, torch: Any) -> float:
    body = inner(module)
    if _sharded(module):
        raise _Unknown("the parameters are sharded")
    found: list[Any] = []

    def embedded(part: Any, given: Any, output: Any) -> Any:
        ids = given[0] if given and isinstance(given[0], torch.Tensor) else None
        known = ids is not None and not ids.is_floating_point() and ids.numel() == layout_size(ids)
        if found or not known or output.dim() < 2:
            return output
        found.append(output.detach().requires_grad_())
        return found[0]

    def layout_size(ids: Any) -> int:
        """Elements of the batch's token ids; other embeddings (positions, types) look up other tensors."""
        return ids.numel() if layout.ids is not None and _same(ids, _ids(args, kwargs, layout, torch)) else -1

    handles = [
        part.register_forward_hook(embedded)
        for part in body.modules()
        if isinstance(part, torch.nn.Embedding)
    ]
    try:
        with torch.enable_grad():
            rows = _rows(body(*args, **kwargs), torch)
            if rows is None:  # a fused loss returns no logits while labels are given
                found.clear()
                bare = {k: v for k, v in kwargs.items() if k not in ("labels", "shift_labels")}
                rows = _rows(body(*args, **bare), torch)
            if not found:
                raise _Unknown("the token embeddings were not found")
            if rows is None or rows.shape[0] != found[0].reshape(-1, found[0].shape[-1]).shape[0]:
                raise _Unknown("the output is not one row for each token")
            weights = torch.linspace(-1.0, 1.0, rows.shape[-1], device=rows.device)
            each = (rows.float() * weights).sum(-1)
            others = torch.cat([each[: chosen.begin], each[chosen.end :]]).sum()
            (gradient,) = torch.autograd.grad(others, found[0])
    finally:
        for handle in handles:
            handle.remove()
    sizes = gradient.detach().float().abs().reshape(-1, gradient.shape[-1]).amax(-1)
    largest = float(sizes.max())
    if not largest > 0:
        raise _Unknown("no gradient reaches the token embeddings")
    return float(sizes[chosen.begin : chosen.end].max()) / largest


def _sharded(module: Any) -> bool:
    """Sharded parameters come and go inside a backward that asks for all gradients."""
    kinds = {kind.__name__ for part in module.modules() for kind in type(part).__mro__}
    return bool(kinds & {"FSDPModule", "FullyShardedDataParallel", "DeepSpeedEngine"})


def _ids(args: Any, kwargs: Any, layout: Layout, torch: Any) -> Any:
    found = kwargs.get(layout.ids)
    if isinstance(found, torch.Tensor):
        return found
    for value in args:
        if hasattr(value, "keys") and layout.ids in value:
            return value[layout.ids]
        if isinstance(value, torch.Tensor) and not value.is_floating_point():
            return value
    return None


def _same(one: Any, other: Any) -> bool:
    if other is None or one.numel() != other.numel():
        return False
    return one is other or bool((one.reshape(-1) == other.reshape(-1)).all())


def _rows(output: Any, torch: Any) -> Any:
    """Logits or hidden states as (tokens, features)."""
    value = getattr(output, "logits", None)
    value = getattr(output, "last_hidden_state", None) if value is None else value
    if value is None and hasattr(output, "keys"):
        value = output.get("logits")
    if value is None and isinstance(output, (tuple, list)):
        value = next((v for v in output if isinstance(v, torch.Tensor) and v.dim() >= 2), None)
    if value is None and isinstance(output, torch.Tensor) and output.dim() >= 2:
        value = output
    return None if value is None else value.reshape(-1, value.shape[-1])
