"""The training examples of a micro-batch in a form that does not depend on how they are laid out.

An example is its tokens and the label of each position. Padding does not belong to it, whether a batch is
padded, packed into rows or split; so the multiset of examples of an optimizer step is the same in all.
"""

from __future__ import annotations

import inspect
import itertools
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

_IDS = ("input_ids", "decoder_input_ids", "tokens", "token_ids", "ids", "inputs", "x", "idx", "text", "src")
_LABELS = ("labels", "label", "targets", "target", "y", "lm_labels", "shift_labels")
_BOUNDARIES = ("cu_seq_lens_q", "cu_seqlens", "cu_seqlens_q", "cu_seq_lens")
IGNORED = -100


@dataclass
class Span:
    """One example inside the flattened batch: rows of `width` positions."""

    begin: int
    end: int
    tokens: list[int]
    labels: list[int]

    @property
    def supervised(self) -> int:
        return sum(1 for label in self.labels if label != IGNORED)

    def digest(self) -> int:
        """128 bits over tokens and labels."""
        text = array("q", self.tokens).tobytes() + b"|" + array("q", self.labels).tobytes()
        return int.from_bytes(blake2b(text, digest_size=16).digest(), "big")


@dataclass
class Layout:
    """The examples of one micro-batch."""

    spans: list[Span] = field(default_factory=list)
    other: list[int] = field(default_factory=list)  # digests of rows that hold no token ids
    width: int = 0
    supervised: int | None = None
    ids: str | None = None  # name of the argument with the token ids
    shift: int | None = None  # logits at p predict the label at p + shift; None: labels are not per token

    def digests(self) -> list[int]:
        """One per example that trains something."""
        return [s.digest() for s in self.spans if s.supervised or self.shift is None] + self.other

    def packed_rows(self) -> dict[int, list[Span]]:
        """Row -> its examples."""
        rows: dict[int, list[Span]] = {}
        for span in self.spans:
            rows.setdefault(span.begin // self.width, []).append(span)
        return rows


def bound(module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by the names of the module's forward; one mapping by position counts as named arguments."""
    found: dict[str, Any] = {}
    if args:
        try:
            names = list(inspect.signature(inner(module).forward).parameters)
        except (TypeError, ValueError):
            names = []
        for position, value in enumerate(args):
            if isinstance(value, Mapping):
                found.update(value)
            else:
                found[names[position] if position < len(names) else f"#{position}"] = value
    found.update(kwargs)
    return found


def inner(module: Any) -> Any:
    """The module inside compile, DDP and FSDP wrappers."""
    for _ in range(8):
        for name in ("_orig_mod", "_fsdp_wrapped_module", "module"):
            found = getattr(module, "_modules", {}).get(name)
            if found is not None and (name != "module" or "Parallel" in type(module).__name__
                                      or "DeepSpeed" in type(module).__name__):  # fmt: skip
                module = found
                break
        else:
            return module
    return module


def flatten(batch: Any, torch: Any) -> dict[str, Any]:
    """Tensors of a loader's batch by name; unnamed ones as #0, #1 ..."""
    data = getattr(batch, "data", None)
    if isinstance(data, Mapping) and not isinstance(batch, torch.Tensor):
        batch = data
    if isinstance(batch, torch.Tensor):
        return {"#0": batch}
    if isinstance(batch, Mapping):
        pairs: Iterable[tuple[str, Any]] = [(str(k), v) for k, v in batch.items()]
    elif isinstance(batch, tuple) and hasattr(batch, "_fields"):
        pairs = zip(batch._fields, batch)  # noqa: B905
    elif isinstance(batch, (list, tuple)):
        found: dict[str, Any] = {}
        for index, value in enumerate(batch):
            found.update(flatten(value, torch) if isinstance(value, Mapping) else {f"#{index}": value})
        pairs = found.items()
    else:
        pairs = vars(batch).items() if hasattr(batch, "__dict__") else []
    return {k: v for k, v in pairs if isinstance(v, torch.Tensor)}


def read(named: dict[str, Any], loaded: list[dict[str, Any]], torch: Any) -> Layout:
    """The examples of a call of the model. `loaded`: recent batches, for labels the model is not given."""
    tensors = {k: v for k, v in named.items() if isinstance(v, torch.Tensor)}
    name = _ids_name(tensors, torch)
    if name is None:
        return _rows_without_tokens(tensors, loaded, torch)
    ids = _plain(tensors[name], torch)
    if ids.dim() == 1:
        ids = ids.unsqueeze(0)
    labels = _labels(tensors, loaded, name, ids, torch)
    spans = _spans(ids, tensors, name, labels, torch)
    layout = Layout(width=int(ids.shape[1]), ids=name)
    table = ids.reshape(-1).tolist()
    if labels is None or labels.shape != ids.shape:
        return _without_token_labels(layout, spans, table, ids, labels)
    marks = labels.reshape(-1).tolist()
    layout.shift = _shift(spans, table, marks)
    for begin, end in spans:
        tokens, own = table[begin:end], marks[begin:end]
        if layout.shift == 1 and begin % layout.width == 0:
            # Nothing predicts a row's first token. Inside a row the position before does, whatever it holds:
            # a packer that leaves a label there trains across the boundary.
            own[0] = IGNORED
        if layout.shift is not None:
            last = next((n for n in range(len(own) - 1, -1, -1) if own[n] != IGNORED), -1)
            tokens, own = tokens[: last + 1], own[: last + 1]
        layout.spans.append(Span(begin, end, tokens, own))
    layout.supervised = sum(span.supervised for span in layout.spans)
    return layout


def _plain(value: Any, torch: Any) -> Any:
    full = getattr(value, "full_tensor", None)
    return (full() if full is not None else value).detach().to("cpu", torch.int64)


def _whole(value: Any) -> bool:
    return str(value.dtype) in ("torch.int64", "torch.int32")


def _ids_name(tensors: dict[str, Any], torch: Any) -> str | None:
    for name in _IDS:
        if name in tensors and _whole(tensors[name]) and tensors[name].dim() in (1, 2):
            return name
    for name, value in tensors.items():
        if name not in _LABELS and _whole(value) and value.dim() == 2 and value.shape[1] > 1:
            return name
    return None


def _labels(
    tensors: dict[str, Any], loaded: list[dict[str, Any]], name: str, ids: Any, torch: Any
) -> Any | None:
    """Labels the model got, or those that came from the loader with the same token ids."""
    for key in _LABELS:
        if key in tensors and key != name:
            value = _plain(tensors[key], torch) if not tensors[key].is_floating_point() else None
            return value.reshape(ids.shape) if value is not None and value.numel() == ids.numel() else value
    for batch in reversed(loaded):
        same = next(
            (
                k
                for k, v in batch.items()
                if _whole(v) and v.shape == ids.shape and torch.equal(_plain(v, torch), ids)
            ),
            None,
        )
        if same is None:
            continue
        others = [k for k in _LABELS if k in batch and k != same]
        others += [k for k, v in batch.items() if k.startswith("#") and k != same and _whole(v)]
        for key in others:
            return _plain(batch[key], torch)
        # A loop that shifts the token ids itself: every real token is a label.
        return None
    return None


def _spans(ids: Any, tensors: dict[str, Any], name: str, labels: Any, torch: Any) -> list[tuple[int, int]]:
    """Begin and end of every example in the flattened batch."""
    rows, width = ids.shape
    total = rows * width
    real = [True] * total
    mask = tensors.get("attention_mask")
    groups: list[int] | None = None
    if mask is not None and mask.dim() == 2 and mask.numel() == total:
        values = _plain(mask, torch).reshape(-1).tolist()
        real = [bool(v) for v in values]
        if labels is not None and labels.shape == ids.shape:
            # A position that is trained on belongs to an example even where the mask calls it padding.
            real = [r or m != IGNORED for r, m in zip(real, labels.reshape(-1).tolist())]  # noqa: B905
        groups = values if max(values, default=0) > 1 else None
    starts = {row * width for row in range(rows)}
    edges = next((tensors[k] for k in _BOUNDARIES if k in tensors and tensors[k].dim() == 1), None)
    if edges is None and mask is not None and _is_boundaries(mask, total):
        edges = mask
    if edges is not None:
        starts |= {int(e) for e in edges.tolist() if 0 <= int(e) < total}
    elif groups is not None:
        starts |= {p for p in range(1, total) if groups[p] != groups[p - 1]}
    else:
        for key in ("position_ids", "positions", "seq_idx"):
            if key not in tensors:
                continue
            value = _plain(tensors[key], torch)
            value = value[0] if value.dim() == 3 else value
            if value.numel() not in (total, width):
                continue
            table = value.reshape(-1).tolist()
            table = table * rows if len(table) == width and rows > 1 else table
            starts |= _changes(table, real, width) if key == "seq_idx" else _restarts(table, real, width)
            break
    order = [*sorted(starts), total]
    found = []
    for begin, end in itertools.pairwise(order):
        while begin < end and not real[begin]:
            begin += 1
        while end > begin and not real[end - 1]:
            end -= 1
        if end > begin:
            found.append((begin, end))
    return found


def _is_boundaries(mask: Any, total: int) -> bool:
    """Sums of lengths, handed on in the place of a mask: 0, ..., the number of tokens."""
    if mask.dim() != 1 or mask.numel() < 2 or not _whole(mask):
        return False
    edges = mask.tolist()
    return edges[0] == 0 and edges[-1] == total and all(a < b for a, b in itertools.pairwise(edges))


def _restarts(table: list[int], real: list[bool], width: int) -> set[int]:
    """Positions at which the count begins again inside a row."""
    found, first = set(), 0
    for p in range(len(table)):
        if p % width == 0 or not real[p - 1]:
            first = table[p]
        elif real[p] and table[p] == first and table[p] <= table[p - 1]:
            found.add(p)
    return found


def _changes(table: list[int], real: list[bool], width: int) -> set[int]:
    return {p for p in range(1, len(table)) if p % width and table[p] != table[p - 1]}


def _shift(spans: list[tuple[int, int]], tokens: list[int], labels: list[int]) -> int | None:
    """1: labels lie on their own tokens and the model shifts; 0: shifted before; None: no language model."""
    own = after = valid = 0
    for begin, end in spans:
        for p in range(begin, end):
            if labels[p] != IGNORED:
                valid += 1
                own += labels[p] == tokens[p]
                after += p + 1 < end and labels[p] == tokens[p + 1]
    if not valid or 2 * max(own, after) < valid:
        return 1 if not valid else None
    return 1 if own >= after else 0


def _without_token_labels(
    layout: Layout, spans: list[tuple[int, int]], table: list[int], ids: Any, labels: Any
) -> Layout:
    """Labels per example (classification), of another length (translation), or none that were seen."""
    rows = None
    if labels is not None and labels.dim() and labels.shape[0] == ids.shape[0]:
        rows = labels.reshape(ids.shape[0], -1).tolist()
        layout.supervised = sum(1 for row in rows for label in row if label != IGNORED)
    for begin, end in spans:
        tokens = table[begin:end]
        while len(tokens) > 2 and tokens[-1] == tokens[-2]:  # padding, where no mask tells it
            tokens = tokens[:-1]
        own = list(rows[begin // layout.width]) if rows is not None else []
        while own and own[-1] == IGNORED:
            own.pop()
        layout.spans.append(Span(begin, end, tokens, own))
    return layout


def _rows_without_tokens(tensors: dict[str, Any], loaded: list[dict[str, Any]], torch: Any) -> Layout:
    """Images, features: one digest per row over every tensor that has as many rows as the first."""
    layout = Layout()
    first = next((v for v in tensors.values() if v.dim() > 0), None)
    if first is None:
        return layout
    count = int(first.shape[0])
    parts = [v for v in tensors.values() if v.dim() and v.shape[0] == count]
    for batch in reversed(loaded):
        same = [
            k
            for k, v in batch.items()
            if v.shape == first.shape and torch.equal(v.cpu(), first.detach().cpu())
        ]
        if same:
            parts += [v for k, v in batch.items() if k not in same and v.dim() and v.shape[0] == count]
            break
    moved = [p.detach().cpu().contiguous() for p in parts]
    for row in range(count):
        text = b"|".join(_bytes(p[row], torch) for p in moved)
        layout.other.append(int.from_bytes(blake2b(text, digest_size=16).digest(), "big"))
    return layout


def _bytes(value: Any, torch: Any) -> bytes:
    flat = value.reshape(-1)
    if flat.is_floating_point() or flat.is_complex():
        return array("d", flat.to(torch.float64).tolist()).tobytes() if not flat.is_complex() else repr(
            flat.tolist()
        ).encode()  # fmt: skip
    return array("q", flat.to(torch.int64).tolist()).tobytes()
