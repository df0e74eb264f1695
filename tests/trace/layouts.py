"""A small trace with every kind of event, and writers that lay it out in different ways."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

EPOCH_US = 1_711_964_646_000_123  # doubles of this size step by a quarter of a microsecond


def events(origin_us: str = "5115750227986") -> list[dict[str, Any]]:
    """Ops, runtime calls, kernels, copies, flows, memory samples and metadata around one kernel pair."""

    def at(ns: int) -> Decimal:
        return Decimal(origin_us) + Decimal(ns) / 1000

    def x(category: str, name: str, start: int, dur: int, **args: Any) -> dict[str, Any]:
        tid = args.pop("tid", 11)
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": args.pop("pid", 10),
            "tid": tid,
            "ts": at(start),
            "dur": Decimal(dur) / 1000,
            "args": args,
        }

    tricky = 'void f<{lambda(int)#1}, {lambda()#2}>(char const*) \\ "quoted" ]}, {"ph": "X"}'
    return [
        {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "ts": at(0), "args": {"name": "python"}},
        x("user_annotation", "ProfilerStep#3", 0, 90_001, **{"External id": 1}),
        x("cpu_op", "aten::mm", 1_003, 20_007, **{
            "External id": 2, "Sequence number": 7, "Fwd thread id": 0,
            "Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""],
        }),
        x("cuda_runtime", "cudaLaunchKernel", 4_001, 3_003, **{"External id": 2, "correlation": 77}),
        x("kernel", tricky, 9_009, 30_011, pid=0, tid=7, stream=7, device=0, correlation=77),
        {"ph": "s", "id": 77, "pid": 10, "tid": 11, "ts": at(4_001), "cat": "ac2g", "name": "ac2g"},
        x("cuda_runtime", "cudaLaunchKernel", 30_000, 2_000, **{"correlation": 78}),
        x("kernel", "sgemm_naïve_κ", 35_555, 7_777, pid=0, tid=13, stream=13, device=0, correlation=78),
        x("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 60_000, 1_001, pid=0, tid=7, stream=7, device=0,
          correlation=79, bytes=4096),
        {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 10, "tid": 11,
         "ts": at(5_000), "args": {"Total Allocated": 1 << 30, "Total Reserved": 1 << 31, "Bytes": 512,
                                   "Device Type": 1, "Device Id": 0}},
        x("overhead", "Lazy Function Loading", 70_000, 5_000, pid=-1, tid=0),
        x("Trace", "PyTorch Profiler (0)", 0, 95_000, pid="Spans", tid="PyTorch Profiler"),
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": at(95_000)},
    ]  # fmt: skip


def metadata() -> dict[str, Any]:
    """Top-level keys around the events, one of them a trap for careless searching."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA H200", "numSms": 132},
            {"id": 1, "name": "NVIDIA H200"},
        ],
        "note": 'text with "traceEvents": [ and }, { inside',
        "distributedInfo": {
            "backend": "nccl",
            "rank": 1,
            "world_size": 2,
            "pg_config": [{"a": [1]}, {"b": 2}],
        },
        "baseTimeNanoseconds": 1790857026000000000,
    }


def dumps(value: Any, **options: Any) -> str:
    """JSON text with decimals written digit by digit."""
    if isinstance(value, dict):
        colon = _colon(options)
        pairs = [f"{json.dumps(k, **_plain(options))}{colon}{dumps(v, **options)}" for k, v in value.items()]
        return _joined("{", "}", pairs, options)
    if isinstance(value, list):
        return _joined("[", "]", [dumps(item, **options) for item in value], options)
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, **_plain(options))


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    return {"ensure_ascii": options.get("ensure_ascii", True)}


def _colon(options: dict[str, Any]) -> str:
    return str(options.get("colon", ": "))


def _joined(opening: str, closing: str, parts: list[str], options: dict[str, Any]) -> str:
    comma = str(options.get("comma", ", "))
    pad = str(options.get("pad", ""))
    return f"{opening}{pad}{comma.join(parts)}{pad}{closing}"
