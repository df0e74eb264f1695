"""Tokens of a batch as it leaves the DataLoader, counted on the CPU side.

A batch on a device is described by its shapes only: counting there would make the job wait. Real tokens
come from the attention mask, else from a known pad id, else from a constant run at the row ends that
repeats over several batches; a batch without any of these has `real = None` (unknown), never "no padding".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ID_KEYS = (
    "input_ids", "decoder_input_ids", "tokens", "token_ids", "ids", "inputs", "x", "idx", "text", "src",
)  # fmt: skip
_LABEL_KEYS = ("labels", "label", "targets", "target", "y", "lm_labels", "shift_labels")
BOUNDARY_KEYS = (
    "seq_idx", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "cu_seqlens", "document_ids",
)  # fmt: skip
_IGNORE = -100
_IDS = "input_ids"
_FEWEST_VALUES, _MOST_VALUES = 8, 4096  # of a batch's digest
_DEPTH = 2  # mappings inside a batch that are looked into
# batches in which the same id must end the rows before it counts as padding
_TIMES_SEEN = 3
_tail_ids: Counter[int] = Counter()


@dataclass
class Batch:
    """One micro-batch. Counts are None when they cannot be known without touching a device."""

    examples: int | None = None
    tokens: int | None = None
    real: int | None = None
    supervised: int | None = None
    shape: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    tensors: int = 0
    elements: int | None = None  # of all its tensors, when it has nothing else
    padding_side: str | None = None  # right | left | none
    row_lengths: Any = None  # tensor of real lengths, one per example
    text: bool = False  # holds token ids of shape (batch, length)
    masked: bool = False  # has an attention mask
    mask_all_ones: bool | None = None
    restarts: bool | None = None  # position ids begin again inside a row
    boundaries: tuple[str, ...] = ()
    label_gaps: Any = None  # tensor: per row, single positions without a label between labelled ones
    source: Any = None  # the loader it came from
    digest: str = ""  # of its tensors' values
    largest: int = 0  # values of its largest tensor

    @property
    def lengths(self) -> list[int]:
        """Real lengths of the examples, empty when unknown; converted when asked for, most never are."""
        return [] if self.row_lengths is None else [int(n) for n in self.row_lengths.tolist()]


def digest(batch: Any, torch: Any) -> str:
    """Of values spread over all tensors that vary; empty where one is on a device or few values vary."""
    named, _ = _named(batch, torch)
    found = []
    for tensor in named.values():
        if not _readable(tensor) or tensor.is_complex():
            return ""
        flat = tensor.detach().reshape(-1)
        if flat.numel() > _MOST_VALUES:
            # no whole number apart: a column of every row would be a margin or a first token
            flat = flat[torch.linspace(0, flat.numel() - 1, _MOST_VALUES, dtype=torch.float64).long()]
        values = flat.double().tolist()
        if len(set(values)) > 1:
            found.append(values)
    if sum(map(len, found)) < _FEWEST_VALUES:
        return ""
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def largest(batch: Any, torch: Any) -> int:
    """Values of the largest tensor."""
    return max((_size(tensor) for tensor in _named(batch, torch)[0].values()), default=0)


def describe(
    batch: Any,
    torch: Any,
    pad_id: int | None = None,
    ends_texts: bool = False,
    lengths: bool = True,
    side: bool = True,
) -> Batch | None:
    """Describe a batch of any usual form: mapping, BatchEncoding, (named) tuple, list, object, tensor.

    `ends_texts`: the pad id also ends every text, so the first one of a run is real. `lengths`: also of the
    examples inside packed rows. `side`: also where the padding is.
    """
    named, others = _named(batch, torch)
    if not named:
        return None
    parts = _parts(named)
    if parts:
        return _together([_described(p, (), torch, pad_id, ends_texts, lengths, side) for p in parts], named)
    return _described(named, others, torch, pad_id, ends_texts, lengths, side)


def _described(
    named: dict[str, Any],
    others: tuple[str, ...],
    torch: Any,
    pad_id: int | None,
    ends_texts: bool,
    lengths: bool,
    side: bool,
) -> Batch:
    """A batch that holds one table of token ids, or none."""
    result = Batch(keys=tuple(k for k in (*named, *others) if not k.startswith("#")))
    result.tensors, result.elements = len(named), _elements(named, others)
    result.boundaries = tuple(k for k in BOUNDARY_KEYS if k in named or k in others)
    ids_key = _ids_key(named)
    if ids_key is None:
        first = next((tensor for tensor in named.values() if not tensor.is_nested), None)
        result.shape = () if first is None else tuple(int(n) for n in first.shape)
        result.examples = result.shape[0] if result.shape else None
        return result
    ids = named[ids_key]
    mask = named.get("attention_mask")
    result.text = True
    result.shape = tuple(int(n) for n in ids.shape)
    result.tokens = int(ids.numel())
    result.examples = result.shape[0]
    result.masked = mask is not None
    if not _readable(ids) or not result.tokens:
        return result
    if mask is not None and not (_readable(mask) and mask.shape == ids.shape):
        mask = None
    rows, drops = _starts_again(named.get("position_ids"), ids, mask)
    if rows is not None:
        filling = _filling(ids, _labels(named, ids_key, ids))
        _count_packed(result, rows, drops, mask, filling, torch, lengths)
    if result.real is None and mask is not None:
        _count_masked(result, mask, torch, side)
    elif result.real is None:
        _count_unmasked(result, ids, pad_id, ends_texts, side)
    _count_supervised(result, named, ids_key, ids, gaps=lengths)
    return result


def _elements(named: dict[str, Any], others: tuple[str, ...]) -> int | None:
    return None if others else sum(_size(tensor) for tensor in named.values())


def _readable(tensor: Any) -> bool:
    """Its values can be looked at without waiting for a device: a plain table, neither sparse nor ragged."""
    return tensor.device.type == "cpu" and str(tensor.layout) == "torch.strided" and not tensor.is_nested


def _size(tensor: Any) -> int:
    """Values in it; of rows of different lengths those that it holds."""
    held = tensor.values() if tensor.is_nested and str(tensor.layout) == "torch.jagged" else tensor
    return int(held.numel())


def _named(batch: Any, torch: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Tensors by name (unnamed ones as #0, #1 ... in order), and the names of what is no tensor."""
    if isinstance(batch, torch.Tensor):
        return {"#0": batch}, ()
    pairs = _pairs(batch, torch)
    tables = [key for key, _ in pairs if key.endswith(_IDS)]
    if len(tables) == 1 and tables != [_IDS]:  # one text inside: its tensors go by their own names
        outer = tables[0].removesuffix(_IDS)
        pairs = [(key.removeprefix(outer), value) for key, value in pairs]
    tensors: dict[str, Any] = {}
    others = []
    for key, value in pairs:
        if isinstance(value, torch.Tensor):
            tensors.setdefault(key, value)
        else:
            others.append(key)
    return tensors, tuple(others)


def _pairs(batch: Any, torch: Any, depth: int = 0) -> list[tuple[str, Any]]:
    """Names and values; those of a mapping inside get the outer name in front."""
    data = getattr(batch, "data", None)
    if isinstance(data, Mapping) and not isinstance(batch, (Mapping, torch.Tensor)):
        batch = data
    if isinstance(batch, Mapping):
        pairs = [(str(key), value) for key, value in batch.items()]
    elif isinstance(batch, tuple) and hasattr(batch, "_fields"):
        pairs = list(zip(batch._fields, batch, strict=True))
    elif isinstance(batch, (tuple, list)):
        pairs = [(f"#{index}", value) for index, value in enumerate(batch)]
    else:
        values = getattr(batch, "__dict__", None)
        pairs = list(values.items()) if isinstance(values, dict) else []
    if depth >= _DEPTH:
        return pairs
    found: list[tuple[str, Any]] = []
    for key, value in pairs:
        if _holds_named(value):
            found += [(f"{key}_{name}", inner) for name, inner in _pairs(value, torch, depth + 1)]
        else:
            found.append((key, value))
    return found


def _holds_named(value: Any) -> bool:
    """A mapping, or a list of them."""
    if isinstance(value, (tuple, list)):
        return bool(value) and all(_holds_named(inner) for inner in value[:8])
    return isinstance(value, Mapping) or isinstance(getattr(value, "data", None), Mapping)


def _parts(named: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a batch with several texts (chosen and rejected, query and passage): the tensors of each."""
    tables = [key for key in named if key.endswith(_IDS) and _integer_rows(named[key])]
    if len(tables) < 2 or _IDS in tables:
        return []
    outers = [key.removesuffix(_IDS) for key in tables]
    return [{k.removeprefix(o): v for k, v in named.items() if k.startswith(o)} for o in outers]


def _together(parts: list[Batch], named: dict[str, Any]) -> Batch:
    """Several texts of one batch as one: counts added up, the shape that of the largest."""
    largest = max(parts, key=lambda part: part.tokens or 0)
    result = Batch(keys=tuple(named), tensors=len(named), text=True, shape=largest.shape)
    for name in ("examples", "tokens", "real", "supervised"):
        values = [getattr(part, name) for part in parts]
        setattr(result, name, None if None in values else sum(values))
    result.masked = all(part.masked for part in parts)
    result.padding_side = largest.padding_side
    lengths = [part.row_lengths for part in parts]
    if all(length is not None for length in lengths):
        result.row_lengths = lengths[0].new_tensor([n for length in lengths for n in length.tolist()])
    return result


def _integer_rows(value: Any) -> bool:
    """A (batch, length) table of whole numbers."""
    return value.dim() == 2 and not value.is_nested and str(value.dtype) in ("torch.int64", "torch.int32")


def _ids_key(named: dict[str, Any]) -> str | None:
    for key in _ID_KEYS:
        if key in named and _integer_rows(named[key]):
            return key
    for key, value in named.items():
        if key.startswith("#") and _integer_rows(value) and value.shape[1] > 1:
            return key
    return None


def _filling(ids: Any, labels: Any) -> Any:
    """Where packed rows are filled up: one id to the row's end, none of it trained on; None without."""
    if labels is None or labels.shape != ids.shape:
        return None
    same = (ids == ids[:, -1:]) & (labels == _IGNORE)
    tail = same.flip(1).int().cumprod(dim=1).flip(1).bool()
    tail &= tail.sum(dim=1, keepdim=True) > 1  # a last token alone may be of a text
    return tail if bool(tail.any()) else None


def _starts_again(positions: Any, ids: Any, mask: Any) -> tuple[Any, Any]:
    """Position ids as a table like that of the ids, and where they start again inside a row; None, None
    where they are of another form.

    With a plane for each direction of an image (3, batch, length) the first stands still in an image.
    """
    if positions is None or not _readable(positions) or positions.dim() not in (2, 3):
        return None, None
    planes = positions.dim() == 3
    rows = positions[0] if planes and positions.shape[0] else positions
    if rows.shape != ids.shape:
        if rows.dim() != 2 or tuple(rows.shape) != (1, ids.shape[1]):
            return None, None
        rows = rows.expand(ids.shape)  # one row for all of them
    drops = rows[:, 1:] < rows[:, :-1] if planes else rows[:, 1:] <= rows[:, :-1]
    if mask is not None:  # what padding is numbered with says nothing
        drops = drops & (mask[:, 1:] != 0) & (mask[:, :-1] != 0)
    return rows, drops


def _count_packed(
    result: Batch, rows: Any, drops: Any, mask: Any, filling: Any, torch: Any, lengths: bool
) -> None:
    """Rows in which position ids start again hold several examples, and padding at the row's end at most.

    A packed row may also hold one example: positions that only count up, in a batch that says its boundaries.
    """
    restarts = int(torch.count_nonzero(drops))
    result.restarts = restarts > 0
    if mask is not None or not (restarts or (result.boundaries and rows.shape[0] == 1)):
        return
    result.real = result.tokens
    result.examples = rows.shape[0] + restarts
    if not lengths and filling is None:
        return
    starts = torch.cat([torch.ones_like(drops[:, :1]), drops], dim=1)
    if filling is not None:
        text = ~filling
        result.real, result.examples = int(text.sum()), int((starts & text).sum())
        per_example = torch.bincount(starts.flatten().cumsum(0)[text.flatten()])
        result.row_lengths = per_example[per_example > 0] if lengths else None
        return
    # rows begin with a start, so over the flattened rows every example ends where the next one begins
    begins = starts.flatten().nonzero().flatten()
    result.row_lengths = torch.diff(begins, append=torch.tensor([starts.numel()]))


def _count_masked(result: Batch, mask: Any, torch: Any, side: bool) -> None:
    result.row_lengths = torch.count_nonzero(mask, dim=1)
    result.real = int(result.row_lengths.sum())
    result.mask_all_ones = result.real == result.tokens
    if side:
        _padding_side(result, mask != 0)


def _count_unmasked(result: Batch, ids: Any, pad_id: int | None, ends_texts: bool, side: bool) -> None:
    padding = pad_id if pad_id is not None else _learned_pad_id(ids)
    if padding is None:
        return
    valid = _without_run(ids, padding, ends_texts and pad_id is not None)
    result.row_lengths = valid.sum(dim=1)
    result.real = int(result.row_lengths.sum())
    if side:
        _padding_side(result, valid)


def _padding_side(result: Batch, valid: Any) -> None:
    if result.real == result.tokens:
        result.padding_side = "none"
        return
    left, right = int((~valid[:, 0]).sum()), int((~valid[:, -1]).sum())
    result.padding_side = "left" if left > right else "right"


def _without_run(ids: Any, pad_id: int, keep_one: bool) -> Any:
    """Positions outside a run of the pad id at a row's ends; `keep_one`: the run's first one is real."""
    other = (ids != pad_id).int()
    after_first = other.cumsum(dim=1) > 0
    before_last = other.flip(1).cumsum(dim=1).flip(1) > 0
    if keep_one:
        before_last[:, 1:] |= before_last[:, :-1].clone()
    return after_first & before_last


def _learned_pad_id(ids: Any) -> int | None:
    """An id that ended (or began) half of the other rows in a run of two or more, batch after batch."""
    if _tail_ids and _tail_ids.most_common(1)[0][1] >= _TIMES_SEEN:
        return _tail_ids.most_common(1)[0][0]
    rows = ids.shape[0]
    if rows < 2 or ids.shape[1] < 3:
        return None
    for outer, inner in ((ids[:, -1], ids[:, -2]), (ids[:, 0], ids[:, 1])):
        repeated = outer[outer == inner].tolist()
        if repeated and len(set(repeated)) == 1 and len(repeated) >= max(1, (rows - 1) / 2):
            _tail_ids[int(repeated[0])] += 1
            break
    return None


def _labels(named: dict[str, Any], ids_key: str, ids: Any) -> Any:
    """The batch's labels; None where it has none, or they cannot be read without waiting."""
    labels = next((named[k] for k in _LABEL_KEYS if k in named and k != ids_key), None)
    if labels is None and ids_key.startswith("#"):
        same = (v for k, v in named.items() if k != ids_key and _integer_rows(v) and v.shape == ids.shape)
        labels = next(same, None)
    if labels is None or not _readable(labels) or labels.dtype.is_floating_point:
        return None
    return labels


def _count_supervised(
    result: Batch, named: dict[str, Any], ids_key: str, ids: Any, gaps: bool = False
) -> None:
    labels = _labels(named, ids_key, ids)
    if labels is None:
        return
    if labels.shape == ids.shape:
        counts = labels != _IGNORE
        result.supervised = int(counts.sum())
        if gaps and counts.dim() == 2 and counts.shape[1] > 2:
            # where documents are packed, the first token of each has nothing before it to be predicted from
            result.label_gaps = (counts[:, :-2] & ~counts[:, 1:-1] & counts[:, 2:]).sum(dim=1)
