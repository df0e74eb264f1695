"""Run a rendered script and keep what its first optimizer step saw: gradients before it, weights after it.

first_step.py SCRIPT RESULT [options of the script]
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import torch


def full(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def main() -> None:
    script, result = sys.argv[1:3]
    sys.argv = [script, *sys.argv[3:]]
    seen: dict[str, Any] = {}
    step = torch.optim.AdamW.step

    def spy(optimizer: torch.optim.AdamW, *args: Any, **kwargs: Any) -> Any:
        params = [p for group in optimizer.param_groups for p in group["params"]]
        first = "gradients" not in seen
        if first:
            seen["gradients"] = [full(p.grad) for p in params]
        out = step(optimizer, *args, **kwargs)
        if first:
            seen["weights"] = [full(p) for p in params]
        return out

    torch.optim.AdamW.step = spy  # type: ignore[method-assign]
    runpy.run_path(script, run_name="__main__")
    if os.environ["RANK"] == "0":
        torch.save({"gradients": seen["gradients"], "weights": seen["weights"]}, result)


main()
