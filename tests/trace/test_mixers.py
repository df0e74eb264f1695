"""The work between two projections, forward and backward, on a trace laid out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.trace.classes import load_kernel_table
from autotune.trace.context import Context, prepare
from autotune.trace.halves import read
from autotune.trace.mixers import mixer_work
from tests.trace.recorded import TABLES


def context(tmp_path: Path, ops: list[tuple[str, int, int, int, int]]) -> Context:
    """(name, thread, start, sequence, forward thread) of ops of 8 us that launch one kernel each."""
    events: list[dict[str, Any]] = []
    for number, (name, thread, start, sequence, forward) in enumerate(ops):
        at = {"ph": "X", "pid": 1, "tid": thread, "ts": 10.0 * start}
        arguments = {"External id": number, "Sequence number": sequence, "Fwd thread id": forward}
        events.append({**at, "cat": "cpu_op", "name": name, "dur": 8.0, "args": arguments})
        launch = {"External id": number, "correlation": number + 1}
        runtime = {**at, "ts": 10.0 * start + 1, "cat": "cuda_runtime", "name": "cudaLaunchKernel"}
        events.append({**runtime, "dur": 2.0, "args": launch})
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel_{name}_{number}", "pid": 0, "tid": 7}
        place = {"stream": 7, "device": 0, "correlation": number + 1}
        events.append({**kernel, "ts": 10.0 * start + 4, "dur": 1.0, "args": place})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return prepare(read(path, processes=1), load_kernel_table(TABLES))


def kernels(found: Context) -> set[str]:
    rows = mixer_work(found, found.ops_named("aten::linalg_solve_triangular"))
    return {found.trace.names[n] for n in found.trace.gpu.name[rows]}


EVALUATE = "autograd::engine::evaluate_function: "
FORWARD = [
    ("aten::linear", 1, 0, 100, 0),
    ("aten::conv1d", 1, 1, 101, 0),
    ("aten::linalg_solve_triangular", 1, 2, 102, 0),
    ("aten::detach", 1, 3, 103, 0),  # no gradient: bears the number of the projection behind it
    ("aten::linear", 1, 4, 103, 0),
    ("aten::mul", 1, 5, 104, 0),
]
BACKWARD = [
    (EVALUATE + "MulBackward0", 2, 10, 104, 5),
    (EVALUATE + "MmBackward0", 2, 11, 103, 5),
    (EVALUATE + "LinalgSolveTriangularBackward0", 2, 12, 102, 5),
    (EVALUATE + "ConvolutionBackward0", 2, 13, 101, 5),
    (EVALUATE + "MmBackward0", 2, 14, 100, 5),
]


def test_forward_and_backward_between_the_projections(tmp_path: Path) -> None:
    assert kernels(context(tmp_path, FORWARD + BACKWARD)) == {
        "kernel_aten::conv1d_1",
        "kernel_aten::linalg_solve_triangular_2",
        "kernel_aten::detach_3",
        f"kernel_{EVALUATE}LinalgSolveTriangularBackward0_8",
        f"kernel_{EVALUATE}ConvolutionBackward0_9",
    }


def test_numbers_of_another_thread_are_not_mixed_up(tmp_path: Path) -> None:
    """Each thread counts for itself: another thread's operations bear the same numbers."""
    other = [("aten::relu", 3, 20 + n, 100 + n, 0) for n in range(2, 9)]
    theirs = [(EVALUATE + "ReluBackward0", 4, 30 + n, 100 + n, 6) for n in range(2, 9)]
    found = kernels(context(tmp_path, FORWARD + BACKWARD + other + theirs))
    assert not any("elu" in name for name in found) and len(found) == 5


def test_without_projections_only_the_operation_itself(tmp_path: Path) -> None:
    bare = [op for op in FORWARD if op[0] != "aten::linear"]
    assert kernels(context(tmp_path, bare)) == {"kernel_aten::linalg_solve_triangular_1"}
