"""Broken, thinned and odd traces are named for what they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.records.trace import RankTrace
from autotune.trace.summary import summarize
from tests.trace.layouts import dumps, events, metadata
from tests.trace.recorded import TABLES

Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def changed(folder: Path, change: Change, **head: Any) -> RankTrace:
    items = change(copy.deepcopy(events()))
    file = folder / "trace.json"
    file.write_text(dumps({**metadata(), **head, "traceEvents": items}))
    return summarize([file], tables_dir=TABLES).ranks[0]


def only(*categories: str) -> Change:
    return lambda items: [item for item in items if item.get("cat") in categories]


def set_on(category: str, **values: Any) -> Change:
    def apply(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for item in items:
            if item.get("cat") == category:
                item.update({key: value for key, value in values.items() if key != "args"})
                item["args"].update(values.get("args", {}))
        return items

    return apply


def codes(item: RankTrace) -> set[str]:
    return {warning.code for warning in item.validity.warnings}


def test_gpu_events_missing(tmp_path: Path) -> None:
    item = changed(tmp_path, only("cpu_op", "cuda_runtime"))
    assert "missing_gpu_events" in codes(item) and item.validity.confidence == "low"
    assert item.gpu is None and item.launch is None and item.communication.exposed_ms is None


def test_cpu_only_is_no_fault(tmp_path: Path) -> None:
    item = changed(tmp_path, only("cpu_op"), deviceProperties=[])
    assert codes(item) >= {"cpu_only"} and "missing_gpu_events" not in codes(item)
    assert item.device is None and item.tables.cpu_calls == 1 and item.idle == []


def test_gpu_only(tmp_path: Path) -> None:
    item = changed(tmp_path, only("kernel"))
    assert "missing_cpu_events" in codes(item) and item.validity.training is None
    assert item.gpu is not None and item.gpu.busy_ms == pytest.approx(0.034323)


def test_over_long_event_is_cut_and_said(tmp_path: Path) -> None:
    item = changed(tmp_path, set_on("gpu_memcpy", dur=10**10))
    assert "over_long_events" in codes(item)
    assert item.gpu is not None and item.gpu.span_ms < 1


def test_negative_and_absent_durations_count_zero(tmp_path: Path) -> None:
    item = changed(tmp_path, set_on("gpu_memcpy", dur=-5))
    assert "negative_duration" in codes(item)
    assert item.gpu is not None and item.gpu.kernel_sum_ms == pytest.approx(0.037788)


def test_huge_integers_are_clipped(tmp_path: Path) -> None:
    item = changed(tmp_path, set_on("gpu_memcpy", dur=10**30))
    assert "over_long_events" in codes(item)


def test_clock_disorder(tmp_path: Path) -> None:
    def early(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        calls = [item for item in items if item.get("cat") == "cuda_runtime"]
        for number in range(10):
            call, kernel = (
                copy.deepcopy(calls[0]),
                copy.deepcopy(next(i for i in items if i.get("cat") == "kernel")),
            )
            call["ts"] += 100 * (number + 1)
            kernel["ts"] = call["ts"] - 20
            call["args"]["correlation"] = kernel["args"]["correlation"] = 500 + number
            items += [call, kernel]
        return items

    item = changed(tmp_path, early)
    assert "clock_disorder" in codes(item) and item.validity.confidence == "low"


def test_kernels_without_launches(tmp_path: Path) -> None:
    item = changed(tmp_path, set_on("kernel", args={"correlation": 9_999}))
    assert "unmatched_kernels" in codes(item)
    assert item.launch is not None and item.launch.queue_delay_median_us is None


def test_dropped_gpu_records(tmp_path: Path) -> None:
    def many_calls(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        call = next(item for item in items if item.get("cat") == "cuda_runtime")
        return items + [{**copy.deepcopy(call), "ts": call["ts"] + 50 * n} for n in range(1, 200)]

    assert "dropped_records" in codes(changed(tmp_path, many_calls))


def test_overlap_on_one_stream_is_a_union(tmp_path: Path) -> None:
    def twice(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kernel = next(item for item in items if item.get("cat") == "kernel")
        return [*items, {**copy.deepcopy(kernel), "ts": kernel["ts"] + 10}]

    item = changed(tmp_path, twice)
    assert "stream_overlap" in codes(item)
    assert item.gpu is not None
    assert item.gpu.kernel_sum_ms == pytest.approx(0.0688)
    assert item.gpu.busy_ms == pytest.approx((49_020 - 9_009 + 1_001) / 1e6)


def test_not_training(tmp_path: Path) -> None:
    def no_gradients(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return items

    item = changed(tmp_path, no_gradients)
    assert "not_training" in codes(item) and item.validity.training is False


def test_unknown_categories_are_counted_not_lost(tmp_path: Path) -> None:
    extra = {"ph": "X", "cat": "brand_new", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    item = changed(tmp_path, lambda items: [*items, extra])
    assert item.file.events_by_category["brand_new"] == 1
