"""Recorded inputs of ops: dimensions, types and concrete values, decoded once per distinct shape."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from autotune.trace.columns import Shape

_DTYPES = {
    "c10::bfloat16": "bf16", "bfloat16": "bf16", "c10::half": "fp16", "half": "fp16", "float": "fp32",
    "double": "fp64", "c10::float8_e4m3fn": "fp8", "c10::float8_e5m2": "fp8", "c10::float8_e4m3fnuz": "fp8",
    "c10::float8_e5m2fnuz": "fp8", "c10::float4_e2m1fn_x2": "fp4", "signed char": "int8",
}  # fmt: skip
DTYPE_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "fp4": 0.5, "int8": 1}
_TYPE_BYTES = {
    "long int": 8, "long": 8, "int": 4, "short int": 2, "short": 2, "unsigned char": 1, "bool": 1,
    "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of one op; lists are empty where nothing was recorded."""

    dims: list[Any]
    types: list[str]
    values: list[Any]

    def shape(self, index: int) -> list[int] | None:
        """Dimensions of a tensor input; None when absent or not a tensor."""
        if index >= len(self.dims):
            return None
        dims = self.dims[index]
        plain = isinstance(dims, list) and all(isinstance(size, int) for size in dims)
        return dims if plain and (dims or self.dtype(index) is not None) else None

    def dtype(self, index: int) -> str | None:
        """Short data type of a floating tensor input (bf16, fp32, ...)."""
        return short_dtype(self.types[index]) if index < len(self.types) else None

    def given(self, index: int) -> bool | None:
        """Whether an optional tensor input was passed; None when not recorded."""
        if index >= len(self.types) and index >= len(self.dims):
            return None
        has_type = index < len(self.types) and self.types[index] not in ("", "None")
        has_dims = index < len(self.dims) and bool(self.dims[index])
        return has_type or has_dims

    def value(self, index: int) -> Any:
        """Concrete scalar or list input as text; None when not recorded."""
        return self.values[index] if index < len(self.values) and self.values[index] != "" else None


def short_dtype(name: str) -> str | None:
    """bf16, fp16, fp32, ... for a c10 type name."""
    return _DTYPES.get(name.lower())


def type_bytes(name: str) -> float | None:
    """Bytes per element of a c10 type name; None for what is no tensor type."""
    short = short_dtype(name)
    return DTYPE_BYTES[short] if short is not None else _TYPE_BYTES.get(name)


def decode_inputs(shape: Shape) -> Inputs:
    """Decode the JSON text kept for one shape."""
    return _decode(shape.dims, shape.types, shape.concrete)


@lru_cache(maxsize=65536)
def _decode(dims: bytes, types: bytes, concrete: bytes) -> Inputs:
    return Inputs(_list(dims), [str(item) for item in _list(types)], _list(concrete))


def _list(text: bytes) -> list[Any]:
    if not text:
        return []
    try:
        value = msgspec.json.decode(text)
        if isinstance(value, str):  # older writers put the list into a string
            value = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return []
    return value if isinstance(value, list) else []
