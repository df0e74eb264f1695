"""Keeps torch.compile away from our own frames where a compiled function calls backward or an optimizer.

There torch runs the call outside its graph, but would compile each Python frame below it, hooks included.
"""

from __future__ import annotations

from types import CodeType
from typing import Any


def keep_out(torch: Any, frames: list[CodeType], below: list[CodeType]) -> None:
    """`frames` run as they are, what they call does not count as ours; `below`: also all that they call."""
    module: Any = torch._C._dynamo.eval_frame
    if hasattr(module, "set_code_exec_strategy"):
        skip, usual = module._FrameAction.SKIP, module._FrameAction.DEFAULT
        for code in frames:
            module.set_code_exec_strategy(code, module._FrameExecStrategy(skip, usual))
        for code in below:
            module.set_code_exec_strategy(code, module._FrameExecStrategy(skip, skip))
    elif hasattr(module, "skip_code"):  # torch 2.6
        for code in (*frames, *below):
            module.skip_code(code)
