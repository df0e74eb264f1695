"""Output layer, loss and passes over the logits, from recorded traces and from a small job here."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.records.trace import RankTrace
from autotune.records.trace_ops import LossHead
from autotune.trace.summary import summarize
from tests.trace.recorded import FSDP, PACKED, PADDED, TABLES, rank


@pytest.mark.parametrize(
    ("name", "rows", "product_ms", "loss_ms", "passes_ms"),
    [(PADDED, 7092, 25.9, 15.5, 8.9), (PACKED, 7740, 29.4, 16.9, 9.7), (FSDP, 3568, 37.2, 7.8, 5.2)],
)
def test_recorded(name: str, rows: int, product_ms: float, loss_ms: float, passes_ms: float) -> None:
    """The passes are two casts of 6 bytes a logit: at 4.8 TB/s they take at least half of what was seen."""
    head = rank(name).loss_head
    assert head is not None and (head.classes, head.rows) == (248_320, rows)
    found = (round(head.product_ms, 1), round(head.loss_ms, 1), round(head.passes_ms, 1))
    assert found == (product_ms, loss_ms, passes_ms)
    assert 2 * 6 * head.rows * head.classes / 4.8e9 <= head.passes_ms


CLASSES, WIDTH, ROWS = 1024, 64, 256


def _head(folder: Path, *, width: int, copies: int) -> LossHead | None:
    """Two layers and a loss whose logits are copied so many times, one step on the CPU."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(3))
    head = torch.nn.Linear(width, CLASSES, bias=False)
    x, targets = torch.randn(ROWS, width), torch.randint(0, CLASSES, (ROWS,))

    def step() -> None:
        hidden = x
        for layer in layers:
            hidden = layer(hidden)
        logits = head(hidden)
        for _ in range(copies):
            logits = logits.clone()
        torch.nn.functional.cross_entropy(logits, targets).backward()

    step()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        step()
    file = folder / "trace.json"
    profiler.export_chrome_trace(str(file))
    item: RankTrace = summarize([file], tables_dir=TABLES).ranks[0]
    return item.loss_head


def test_copies_of_the_logits_count_as_passes(tmp_path: Path) -> None:
    without, with_copies = (_head(tmp_path, width=WIDTH, copies=copies) for copies in (0, 8))
    assert without is not None and with_copies is not None
    assert (without.classes, without.rows) == (with_copies.classes, with_copies.rows) == (CLASSES, ROWS)
    assert with_copies.passes_ms > 3 * without.passes_ms and with_copies.passes_ms > 0.2


def test_a_model_as_wide_as_there_are_classes_tells_nothing(tmp_path: Path) -> None:
    """Its layers' products have the size of the output layer's."""
    assert _head(tmp_path, width=CLASSES, copies=0) is None
