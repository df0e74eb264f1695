"""Evaluation between training steps: recognised, timed as a phase, kept out of the training batches."""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import Any

from . import frames, models, sites
from .core import core

_begin_ns = 0
_last_ns = 0
_inside = 0  # depth of an evaluation call of a trainer


def is_evaluation(torch: Any, known_training: bool) -> bool:
    """Gradients are off, a trainer evaluates, or the model is in eval mode (and is not trained that way).

    `known_training`: the batch's loader has fed training steps; a trainer may fetch before it leaves eval
    mode.
    """
    if _inside > 0 or not torch.is_grad_enabled():
        return True
    return not known_training and models.in_eval_mode()


def enter() -> None:
    global _inside
    _inside += 1
    fetched()


def leave() -> None:
    global _inside
    _inside = max(0, _inside - 1)
    fetched()
    if _inside == 0:
        over()


def fetched() -> None:
    """A batch of an evaluation arrived."""
    global _begin_ns, _last_ns
    _last_ns = perf_counter_ns()
    if not _begin_ns:
        _begin_ns = _last_ns
        if core.settings.full:
            _site()


def _site() -> None:
    """The call of the training loop that leads here; none where the loop evaluates by itself."""
    training = sites.codes_of("backward", "optimizer_step")
    inner = None
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in training:
            if inner is not None:
                sites.record("evaluation", inner.f_code.co_name, frame=frame)
            return
        if frames.is_user(frame.f_code.co_filename):
            inner = frame
        frame = frame.f_back


def over() -> None:
    """Training goes on: report the evaluation that went before."""
    global _begin_ns, _last_ns
    if not _begin_ns or _inside:
        return
    from .hook_phases import phase

    phase("evaluation", perf_counter_ns() - _begin_ns)
    _begin_ns = _last_ns = 0
