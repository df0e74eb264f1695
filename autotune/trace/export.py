"""Write a trace's events as Parquet tables, for people who want to ask their own questions.

Needs the optional extra `parquet` (pyarrow). One file per table: host, gpu.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import FilesError, InputError
from autotune.trace.classes import load_kernel_table
from autotune.trace.columns import Gpu, Host
from autotune.trace.context import Context, prepare
from autotune.trace.reader import read_trace
from autotune.trace.regions import Region, find_regions


def export_parquet(path: Path, folder: Path, *, tables_dir: Path) -> list[Path]:
    """Write `host.parquet` and `gpu.parquet` into the folder; returns the files.

    Times are nanoseconds from the first event. Raises InputError when pyarrow is not installed.
    """
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(
            "Parquet export needs pyarrow",
            hint="pip install 'autotune-training[parquet]', or use --json",
            code="extra-missing",
        ) from None
    context = prepare(read_trace(path), load_kernel_table(tables_dir))
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, columns in (("host", _host(context, arrow)), ("gpu", _gpu(context, arrow))):
            target = folder / f"{name}.parquet"
            parquet.write_table(arrow.table(columns), target)
            written.append(target)
    except OSError as fault:
        raise FilesError(f"cannot be written ({fault.strerror or fault})", where=str(folder)) from None
    return written


def _texts(arrow: Any, numbers: Any, words: list[str]) -> Any:
    """A dictionary column: numbers into words."""
    return arrow.DictionaryArray.from_arrays(arrow.array(numbers.astype(np.int32)), arrow.array(words))


def _host(context: Context, arrow: Any) -> dict[str, Any]:
    host, trace = context.trace.host, context.trace
    regions = find_regions(context)
    return {
        "start_ns": host.ts,
        "duration_ns": host.dur.astype(np.int64),
        "name": _texts(arrow, host.name, trace.names),
        "kind": _texts(arrow, host.kind, [kind.name.lower() for kind in Host]),
        "thread": _texts(arrow, host.thread, [f"{pid}/{tid}" for pid, tid in trace.threads]),
        "parent_row": context.tree.parent,
        "region": _texts(arrow, regions.host, [region.name.lower() for region in Region]),
    }


def _gpu(context: Context, arrow: Any) -> dict[str, Any]:
    gpu, trace = context.trace.gpu, context.trace
    return {
        "start_ns": gpu.ts,
        "duration_ns": gpu.dur,
        "name": _texts(arrow, gpu.name, trace.names),
        "kind": _texts(arrow, gpu.kind, [kind.name.lower() for kind in Gpu]),
        "kernel_class": _texts(arrow, context.gpu_class, context.class_names),
        "device": gpu.device,
        "stream": gpu.stream,
        "bytes": gpu.bytes,
        "launch_row": context.launch_row,
        "op_row": context.op_row,
    }
