"""Compilation during training: torch.compile's own counters, and Triton kernels built on first use."""

from __future__ import annotations

import sys
from typing import Any

from .wrapping import observe

_graphs_before: int | None = None
_graphs_first: int | None = None
_built = 0  # Triton kernels built or tuned since the last step
_built_total = 0
_steps_with = 0


def install_triton(module: Any) -> None:
    """`module`: triton.compiler.compiler."""
    observe(module, "compile", after=_kernel_built)
    package = sys.modules.get("triton.compiler")
    if package is not None:
        package.compile = module.compile  # type: ignore[attr-defined]


def install_autotuner(module: Any) -> None:
    """`module`: triton.runtime.autotuner."""
    observe(module.Autotuner, "_bench", after=_kernel_built)


def _kernel_built(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    global _built, _built_total
    _built += 1
    _built_total += 1


def graphs() -> int | None:
    """Graphs torch.compile has made so far; None when it was never used."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return None
    return int(utils.counters["stats"].get("unique_graphs", 0))


def step_ended(index: int) -> bool:
    """True when something was compiled during the step that ended."""
    global _graphs_before, _graphs_first, _built, _steps_with
    made = graphs()
    compiled = _built > 0 or (made is not None and made != (_graphs_before or 0))
    _graphs_before = made
    if index == 1:
        _graphs_first = made or 0
    _built = 0
    _steps_with += compiled
    return compiled


def counters() -> dict[str, float]:
    found: dict[str, float] = {"compile_steps": float(_steps_with)}
    made = graphs()
    if made is not None:
        utils: Any = sys.modules["torch._dynamo.utils"]
        found["compiled_graphs"] = float(made)
        found["recompiles"] = float(made - (_graphs_first or 0))
        found["graph_breaks"] = float(sum(utils.counters["graph_break"].values()))
    if _built_total:
        found["triton_builds"] = float(_built_total)
    return found
