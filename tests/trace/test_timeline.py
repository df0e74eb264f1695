"""Traces as boxes: few enough to draw, and no busy or idle time made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.records.timeline import Timeline, TracePicture
from autotune.records.trace import RankTrace
from autotune.trace.classes import load_kernel_table
from autotune.trace.context import prepare
from autotune.trace.reader import read_trace
from autotune.trace.summary import derive
from autotune.trace.timeline import draw

TRACES = Path(__file__).parent.parent / "traces"
TABLES = Path(__file__).parent.parent.parent / "rules" / "_tables"
NAMES = sorted(path.name for path in TRACES.glob("*.json.gz"))
PADDED, PACKED = (
    "h200_qwen35_2b4_padded_fallback_1step.json.gz",
    "h200_qwen35_2b4_packed_varlen_1step.json.gz",
)
FSDP = "h200x2_qwen35_27b_packed_fsdp2_rank0_1step.json.gz"


@pytest.fixture(scope="module", params=NAMES)
def drawn(request: pytest.FixtureRequest) -> tuple[str, TracePicture, RankTrace]:
    name = request.param
    context = prepare(read_trace(TRACES / name), load_kernel_table(TABLES))
    return name, draw(context, name), derive(context, name, TABLES)


def _step(picture: TracePicture) -> Timeline:
    assert picture.step is not None
    return picture.step


def test_every_picture_is_bounded_and_inside_its_window(drawn: tuple[str, TracePicture, RankTrace]) -> None:
    _, picture, _ = drawn
    for timeline in (picture.step, picture.closer):
        if timeline is None:
            continue
        assert sum(len(lane.boxes) for lane in timeline.lanes) <= 3100
        for lane in timeline.lanes:
            assert lane.boxes and 0 < lane.busy_frac <= 1
            ends = [0.0]
            for box in lane.boxes:
                assert 0 <= box.start_ms < box.end_ms <= timeline.window_ms * (1 + 1e-9)
                assert 0 < box.busy_frac <= 1 + 1e-9 and box.events > 0 and box.longest
                ends.append(box.end_ms)
            covered = sum((box.end_ms - box.start_ms) * box.busy_frac for box in lane.boxes)
            # Boxes of a lane may overlap where its events do, and then count the shared time twice.
            assert covered >= lane.busy_frac * timeline.window_ms * (1 - 1e-6)


@pytest.mark.parametrize("name", [PADDED, PACKED, FSDP])
def test_lanes_of_a_whole_step_hold_all_its_gpu_work(name: str) -> None:
    context = prepare(read_trace(TRACES / name), load_kernel_table(TABLES))
    step, rank = _step(draw(context, name)), derive(context, name, TABLES)
    assert rank.gpu is not None
    gpu = [lane for lane in step.lanes if lane.role not in ("ops", "calls")]
    assert sum(box.events for lane in gpu for box in lane.boxes) == len(context.trace.gpu)
    busiest = max(gpu, key=lambda lane: lane.busy_frac)
    by_stream = max(stream.busy_ms for stream in rank.streams)
    assert busiest.busy_frac * step.window_ms == pytest.approx(by_stream, rel=1e-6)


def test_the_padded_step_shows_a_waiting_gpu_and_the_27b_step_a_busy_one() -> None:
    shares = {}
    for name in (PADDED, FSDP):
        step = _step(draw(prepare(read_trace(TRACES / name), load_kernel_table(TABLES)), name))
        lanes = {lane.name: lane for lane in step.lanes}
        assert next(iter(lanes)) == "CPU, main thread" and "CPU, backward thread" in lanes
        kinds = {box.kind for box in lanes["CPU, backward thread"].boxes}
        assert "backward" in kinds and "forward" not in kinds
        assert {box.kind for box in lanes["CPU, main thread"].boxes} >= {"forward", "optimizer step"}
        shares[name] = lanes["GPU, stream 7: compute"].busy_frac
        assert any(lane.role == "communication" for lane in step.lanes) == (name == FSDP)
    assert shares[PADDED] < 0.35 and shares[FSDP] > 0.85


def test_the_closer_look_is_as_busy_as_the_step(drawn: tuple[str, TracePicture, RankTrace]) -> None:
    name, picture, _ = drawn
    if picture.closer is None or name.startswith(("h100", "mi300x", "train_128")):
        pytest.skip("too few kernels, or streams that hide each other")
    main = max(_step(picture).lanes, key=lambda lane: (lane.role == "compute") * lane.busy_frac)
    near = next(lane for lane in picture.closer.lanes if lane.name == main.name)
    assert abs(near.busy_frac - main.busy_frac) < 0.1
    assert picture.closer.window_ms < 0.2 * _step(picture).window_ms


def test_the_memory_curve_keeps_the_peak(drawn: tuple[str, TracePicture, RankTrace]) -> None:
    _, picture, rank = drawn
    assert (picture.memory is None) == (rank.memory is None)
    if picture.memory is None or rank.memory is None:
        return
    points = picture.memory.points
    assert 1 < len(points) <= 600
    assert max(p.allocated_gib for p in points) == pytest.approx(rank.memory.peak_allocated_gib)
    assert [p.at_ms for p in points] == sorted(p.at_ms for p in points)
