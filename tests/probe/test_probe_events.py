"""Where events go when a process forks before it trains."""

from __future__ import annotations

from pathlib import Path

from probe_parts import part


def test_what_waited_before_a_fork_is_the_past_of_the_rank_that_the_child_becomes(tmp_path: Path) -> None:
    sink = part("sink").Sink(str(tmp_path))
    sink.emit("parity", {"seeded": True})
    sink.after_fork()  # as in the child
    sink.open_rank(0)
    assert "seeded" in (tmp_path / "rank-00000" / "events.jsonl").read_text()
    sink.emit("step", {"index": 1})
    sink.after_fork()  # the child of a rank is a worker: nothing of the rank is its own
    sink.open_rank(0)
    assert (tmp_path / "rank-00000.1" / "events.jsonl").read_text() == ""
    assert "index" not in (tmp_path / "rank-00000" / "events.jsonl").read_text()
