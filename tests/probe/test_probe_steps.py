"""Steps in one process, with the windows replaced by somebody who listens."""

from __future__ import annotations

import time
from typing import Any

import pytest
from probe_parts import part

torch = pytest.importorskip("torch")


def test_the_windows_are_told_how_long_a_step_was_without_the_observer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    core, steps, windows = part("core").core, part("steps").Steps(), part("windows")
    told: list[float] = []
    monkeypatch.setattr(windows, "boundary", lambda index, duration_s, *more: told.append(duration_s))
    monkeypatch.setattr(core, "settings", part("settings").Settings(folder=str(tmp_path)), raising=False)
    monkeypatch.setattr(core, "sink", part("sink").Sink(str(tmp_path)), raising=False)
    optimizer = torch.optim.SGD(torch.nn.Linear(4, 4).parameters(), lr=0.1)
    for observed_s in (0.0, 0.3, 0.0):
        assert steps.backward_begins() and steps.backward_ended(True)
        time.sleep(0.02 + observed_s)
        core.hook_ns += int(observed_s * 1e9)
        steps.optimizer_begins(optimizer, closure=False)
        steps.optimizer_ended()
    steps.close_if_over()
    assert len(told) == 3 and all(0.01 < duration_s < 0.25 for duration_s in told)
