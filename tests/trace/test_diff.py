"""Two traces side by side."""

from __future__ import annotations

from autotune.records.trace import TraceDiff, TraceSummary
from autotune.report.tables import render_diff
from autotune.trace.diff import diff
from autotune.trace.summary import summarize
from tests.trace.recorded import PACKED, PADDED, TABLES, path, rank


def test_padded_against_packed() -> None:
    found = diff(summarize([path(PADDED)], tables_dir=TABLES), summarize([path(PACKED)], tables_dir=TABLES))
    assert (found.totals.cpu_calls_before, found.totals.cpu_calls_after) == (228_421, 37_165)
    assert (found.totals.gpu_kernels_before, found.totals.gpu_kernels_after) == (38_107, 7_770)
    assert sum(row.calls_before for row in found.gpu_kernels) == 38_107
    assert sum(row.calls_after for row in found.gpu_kernels) == 7_770
    assert "chunk_gated_delta_rule_fwd_kernel_h_blockdim64" in found.new_kernels
    assert "kernel_kernel" in found.new_kernels
    assert any("batch_trsm_left_kernel" in name for name in found.gone_kernels)
    matched = next(row for row in found.gpu_kernels if row.name.startswith("nvjet_sm90_tst_192x192_64x4_2x1"))
    assert (matched.status, matched.calls_before, matched.calls_after) == ("matched", 133, 132)
    solves = next(row for row in found.cpu_ops if row.name == "aten::linalg_solve_triangular")
    assert (solves.status, solves.calls_before, solves.calls_after) == ("gone", 108, 0)
    assert found.warnings == []
    assert TraceDiff.model_validate_json(found.model_dump_json()) == found


def test_a_trace_against_itself() -> None:
    one = summarize([path(PACKED)], tables_dir=TABLES)
    found = diff(one, one)
    assert not found.new_kernels and not found.gone_kernels
    assert all(row.status == "matched" for row in [*found.cpu_ops, *found.gpu_kernels])
    assert all(row.total_before_ms == row.total_after_ms for row in found.classes)


def test_rows_of_different_kernels_do_not_look_alike() -> None:
    found = diff(
        TraceSummary(ranks=[rank(PADDED)], cross_rank=None),
        TraceSummary(ranks=[rank(PACKED)], cross_rank=None),
    )
    lines = render_diff(found, rows=8).splitlines()
    names = [line[2:45].strip() for line in lines[lines.index("") :] if " > " in line]
    assert len(names) > 20 and len(set(names)) == len(names)
    assert max(map(len, lines)) <= 80
