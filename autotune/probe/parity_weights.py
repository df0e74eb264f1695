"""Digests of weights and small sketches of gradients, the same for every way of sharding the parameters.

Both are sums over elements of something that depends on the element's place in the whole parameter: shards
add up, and nothing larger than one chunk is ever made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_CHUNK = 1 << 22  # elements
_OPAQUE = 1 << 40  # index distance between ranks whose place in the parameter is unknown
_A, _B, _C = 0x2545F4914F6CDD1D, 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9  # odd 63-bit constants
# A sketch adds up signed elements in this many buckets; odd and prime, so that rows of any width spread out.
BUCKETS = 17


def plain_name(name: str) -> str:
    """A parameter's name without the wrappers of compile, DDP, FSDP and checkpointing."""
    return _WRAPPERS.sub("", name)


@dataclass
class Piece:
    """What this rank holds of one parameter."""

    values: Any
    shape: tuple[int, ...]  # of the whole parameter
    offsets: tuple[int, ...]
    groups: list[Any] = field(default_factory=list)  # process groups over which the pieces add up


def piece_of(value: Any, torch: Any, opaque: bool = False) -> Piece:
    """The local part of a plain tensor, a DTensor, or a DeepSpeed ZeRO-3 parameter."""
    distributed = getattr(torch, "distributed", None)
    ready = distributed is not None and distributed.is_available() and distributed.is_initialized()
    shard = getattr(value, "ds_tensor", None)
    if shard is not None:
        value, opaque = shard, True
    if hasattr(value, "placements") and hasattr(value, "to_local"):
        mesh, local = value.device_mesh, value.to_local()
        groups = [
            mesh.get_group(n) for n, p in enumerate(value.placements) if p.is_shard() and mesh.size(n) > 1
        ]
        if any(type(p).__name__ == "_StridedShard" for p in value.placements):
            start = (distributed.get_rank() * _OPAQUE,) if distributed is not None else (0,)
            return Piece(local.reshape(-1), (int(local.numel()),), start, groups)
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        _, offsets = compute_local_shape_and_global_offset(value.shape, mesh, value.placements)
        return Piece(local, tuple(value.shape), tuple(offsets), groups)
    if opaque and ready and distributed is not None:
        start = distributed.get_rank() * _OPAQUE
        return Piece(value.reshape(-1), (int(value.numel()),), (start,), [distributed.group.WORLD])
    return Piece(value, tuple(value.shape), (0,) * value.dim())


def _chunks(piece: Piece, torch: Any) -> Iterator[tuple[Any, Any, int | None]]:
    """Flat values, the index of each in the whole parameter, and the first where they follow each other."""
    values = piece.values.detach()
    if values.numel() == 0:
        return
    device = values.device
    contiguous = values.dim() <= 1 or tuple(values.shape[1:]) == piece.shape[1:]
    if contiguous:
        row = math.prod(piece.shape[1:]) if values.dim() else 1
        start = (piece.offsets[0] if piece.offsets else 0) * row
        flat = values.reshape(-1)
        for at in range(0, flat.numel(), _CHUNK):
            part = flat[at : at + _CHUNK]
            yield part, torch.arange(start + at, start + at + part.numel(), device=device), start + at
        return
    strides = [math.prod(piece.shape[n + 1 :]) for n in range(len(piece.shape))]
    inner = values[0].numel()
    step = max(1, _CHUNK // max(1, inner))
    for at in range(0, values.shape[0], step):
        part = values[at : at + step]
        index = torch.zeros((), dtype=torch.int64, device=device)
        for dim, size in enumerate(part.shape):
            first = piece.offsets[dim] + (at if dim == 0 else 0)
            line = torch.arange(first, first + size, device=device) * strides[dim]
            index = index + line.view(*[size if d == dim else 1 for d in range(part.dim())])
        yield part.reshape(-1), index.reshape(-1), None


def _mixed(value: Any) -> Any:
    """Spread the bits of int64 values; arithmetic wraps around."""
    value = value ^ (value >> 29)
    value = value * _C
    return value ^ (value >> 32)


def _bits(values: Any, torch: Any) -> Any:
    if values.is_complex():
        values = torch.view_as_real(values).reshape(-1)
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if values.dtype == torch.bool:
        return values.to(torch.int64)
    return values.contiguous().view(sizes[values.element_size()]).to(torch.int64)


def weights_digest(named: list[tuple[str, Any]], torch: Any, widened: bool = False) -> str | None:
    """One digest of all parameters, whatever their order and sharding; None when there are none.

    `widened`: of the values as float32, the same whether they are kept in half precision or not.
    """
    half = (torch.float16, torch.bfloat16)
    names, totals, pieces, marks = [], [], [], []
    for name, value in named:
        piece = piece_of(value, torch, "_fsdp_wrapped_module" in name)
        if piece.values.device.type == "meta":
            continue
        total = torch.zeros((), dtype=torch.int64, device=piece.values.device)
        for part, index, _ in _chunks(piece, torch):
            bits = _bits(part.float() if widened and part.dtype in half else part, torch)
            if bits.numel() != index.numel():  # complex numbers count twice
                index = torch.stack([index * 2, index * 2 + 1], dim=1).reshape(-1)
            total += _mixed(bits * _A + (index + 1) * _B).sum()
        names.append(plain_name(name))
        totals.append(total)
        pieces.append(piece)
        kind = torch.float32 if widened and piece.values.dtype in half else piece.values.dtype
        marks.append(f"{kind} {tuple(getattr(value, 'ds_shape', value.shape))}")
    if not names:
        return None
    whole = 0
    for name, mark, (total,) in zip(names, marks, _added([t.view(1) for t in totals], pieces, torch)):  # noqa: B905
        text = f"{name}|{mark}|{int(total)}".encode()
        whole += int.from_bytes(blake2b(text, digest_size=16).digest(), "big")
    return f"{whole % 2**128:032x}"


def gradient_sketch(named: list[tuple[str, Any]], torch: Any, buckets: int) -> dict[str, list[float]]:
    """Parameter -> [norm, buckets] of its gradient, over all shards.

    Each element is added to one bucket with a sign that is drawn from its place: the sum of squares over the
    buckets estimates the squared norm, of a gradient and of the difference of two gradients.
    """
    names, found, pieces = [], [], []
    for name, parameter in named:
        gradient = getattr(parameter, "main_grad", None)
        gradient = parameter.grad if gradient is None else gradient
        if gradient is None:
            continue
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        piece = piece_of(gradient, torch, "_fsdp_wrapped_module" in name)
        sums = sketch_sums(plain_name(name), piece, buckets, torch)
        names.append(plain_name(name))
        found.append(sums)
        pieces.append(piece)
    result = {}
    for name, values in zip(names, _added(found, pieces, torch)):  # noqa: B905
        result[name] = [math.sqrt(values[0]) if values[0] >= 0 else math.nan, *values[1:]]
    return result


def sketch_sums(name: str, piece: Piece, buckets: int, torch: Any) -> Any:
    """Sum of squares and signed sums of one piece of a gradient; those of several pieces add up."""
    start = int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "big")
    sums = torch.zeros(1 + buckets, dtype=torch.float64, device=piece.values.device)
    for part, index, first in _chunks(piece, torch):
        values = part.abs() if part.is_complex() else part
        values = values.float() if values.element_size() < 4 else values
        sums[0] += (values * values).sum(dtype=torch.float64)
        if buckets:
            signs = 1 - 2 * (_mixed((index + 1) * _B + start) & 1)
            sums[1:] += _bucket_sums(values * signs, index, first, buckets, torch)
    return sums


def _bucket_sums(values: Any, index: Any, first: int | None, buckets: int, torch: Any) -> Any:
    """The sum of the elements whose index leaves each remainder."""
    if first is not None:
        lead = first % buckets
        tail = -(lead + values.numel()) % buckets
        return torch.nn.functional.pad(values, (lead, tail)).view(-1, buckets).sum(0, dtype=torch.float64)
    place = index % buckets
    return torch.stack([(values * (place == n)).sum(dtype=torch.float64) for n in range(buckets)])


def _added(vectors: list[Any], pieces: list[Piece], torch: Any) -> list[list[float]]:
    """Vectors added over the groups their pieces are spread over, as plain numbers, in their order."""
    kinds: dict[tuple[int, ...], list[int]] = {}
    for n, piece in enumerate(pieces):
        kinds.setdefault(tuple(id(g) for g in piece.groups), []).append(n)
    result: list[list[float]] = [[] for _ in vectors]
    for members in kinds.values():
        groups = pieces[members[0]].groups
        table = torch.stack([vectors[n].to(vectors[members[0]].device) for n in members])
        for group in groups:
            if "nccl" in str(torch.distributed.get_backend(group)) and table.device.type == "cpu":
                table = table.to("cuda")
            torch.distributed.all_reduce(table, group=group)
        for n, row in zip(members, table.tolist()):  # noqa: B905
            result[n] = row
    return result
