"""Whether the fused kernels that a change brings are the ones that run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.observation import LayerKernel, Observation


def slow_kernels(observation: Observation, roles: Sequence[str]) -> list[str]:
    """A sentence for each kernel of these roles that the model of any rank runs as PyTorch code."""
    kernels = [k for rank in observation.ranks if rank.model is not None for k in rank.model.kernels]
    return list(dict.fromkeys(_sentence(k) for k in kernels if k.role in roles and not k.fast))


def _sentence(kernel: LayerKernel) -> str:
    package = " ".join(filter(None, [kernel.package, kernel.package_version])) or "its package"
    why = {
        "absent": f"{package} is not found",
        "broken": f"{package} does not import ({kernel.error})",
        "version": f"{package} is there and not taken",
        "switched-off": "fused kernels are switched off",
        "forward-only": f"{package} serves the forward alone here",
    }.get(kernel.reason or "", "the reason is not known")
    return f"{kernel.name} still runs {kernel.implementation}: {why}"
