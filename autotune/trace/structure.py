"""Find element boundaries in JSON text by its structure alone, independent of any writer's white space.

This is the slow, always-right path. The reader first guesses a boundary and proves the guess by decoding;
only when that fails does it come here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_QUOTE, _BACKSLASH = 0x22, 0x5C
_DEPTH = np.zeros(256, dtype=np.int8)
_DEPTH[[ord("{"), ord("[")]] = 1
_DEPTH[[ord("}"), ord("]")]] = -1


@dataclass(frozen=True)
class Cut:
    """Where array elements end in a buffer that starts at an element boundary."""

    commas: npt.NDArray[np.int64]  # positions of commas between elements
    close: int | None  # position of the bracket that ends the array, if it lies in the buffer


def string_mask(data: bytes) -> npt.NDArray[np.bool_]:
    """True for bytes inside string literals (the opening quote included, the closing one not)."""
    text = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    if quotes.size and (text == _BACKSLASH).any():
        quotes = quotes[~_escaped(text, quotes)]
    toggles = np.zeros(text.size + 1, dtype=np.int8)
    toggles[quotes] = 1
    inside = (np.cumsum(toggles[:-1], dtype=np.int32) & 1).astype(bool)
    return inside


def _escaped(text: npt.NDArray[np.uint8], quotes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each quote is preceded by an odd number of backslashes."""
    slashes = np.flatnonzero(text == _BACKSLASH)
    first = np.append(True, np.diff(slashes) > 1)  # of a run of backslashes
    starts = slashes[first][np.cumsum(first) - 1]  # where each backslash's run begins
    before = np.searchsorted(slashes, quotes) - 1  # the last backslash left of each quote
    near = np.maximum(before, 0)
    touches = (before >= 0) & (slashes[near] == quotes - 1)
    return np.asarray(touches & ((quotes - starts[near]) % 2 == 1))


def cut(data: bytes) -> Cut:
    """Element boundaries of an array whose opening bracket was already taken."""
    text = np.frombuffer(data, dtype=np.uint8)
    outside = ~string_mask(data)
    step = _DEPTH[text]
    step[~outside] = 0
    depth = np.cumsum(step, dtype=np.int32)
    ends = np.flatnonzero(depth < 0)
    close = int(ends[0]) if ends.size else None
    commas = np.flatnonzero((text == ord(",")) & outside & (depth == 0))
    if close is not None:
        commas = commas[commas < close]
    return Cut(commas.astype(np.int64), close)
