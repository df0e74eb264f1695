"""The bytes of a file as text and back: Python sources in the encoding they declare, all else in UTF-8."""

from __future__ import annotations

import codecs
import io
import tokenize

from autotune.apply.locate import EditRefused


def encoding_of(data: bytes, name: str) -> str:
    """What a file is written in. Raises EditRefused for a declared encoding that nobody knows."""
    if not name.endswith((".py", ".pyw")):
        return "utf-8"
    try:
        found = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError:
        declared = b"coding" in b"".join(data.splitlines()[:2])
        if declared:
            raise EditRefused(f"{name} declares an encoding that does not fit it") from None
        raise EditRefused(f"{name} cannot be read: it is not UTF-8 text") from None
    # The mark stays part of the text, so that it is written again.
    return "utf-8" if found == "utf-8-sig" else codecs.lookup(found).name


def decode(data: bytes, name: str) -> str:
    """The text of a file. Raises EditRefused."""
    try:
        return data.decode(encoding_of(data, name))
    except UnicodeDecodeError:
        raise EditRefused(f"{name} cannot be read: it is not UTF-8 text") from None


def encode_as(text: str, original: bytes, name: str) -> bytes:
    """An edited text in the encoding of the file it was made from. Raises EditRefused."""
    encoding = encoding_of(original, name)
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        raise EditRefused(f"the edit of {name} cannot be written in its encoding, {encoding}") from None
