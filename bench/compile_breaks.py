"""Which families' blocks compile as a whole: no graph breaks, few compilations, the numbers as they were.

    python bench/compile_breaks.py [FAMILY ...]        without names: the families with softmax attention only

Tiny random models of the installed transformers; each block is compiled for itself, as the generated script
does it (backend aot_eager: forward and backward are traced, no code is made). Three packed rows of one length
with 2, 3 and 5 examples run forward and backward. What passes is WHOLE_BLOCKS in autotune/apply/compiles.py.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from packing_isolation import small_model
from torch._dynamo.utils import counters

ROWS = ((37, 27), (20, 12, 32), (5, 9, 30, 8, 12))
MOST = 3  # compilations for a kind of layer: one length of the boundaries, any length, and one to spare


@dataclass(frozen=True)
class Compiled:
    """What the compiler did with a family; `error` where it did not come that far."""

    breaks: int = 0
    graphs: int = 0
    kinds: int = 1
    apart: float = 0.0
    error: str = ""

    @property
    def passes(self) -> bool:
        return not self.error and not self.breaks and self.graphs <= MOST * self.kinds and self.apart < 1e-5


def arguments(lengths: tuple[int, ...]) -> dict[str, Any]:
    """A packed row and its boundaries."""
    generator = torch.Generator().manual_seed(len(lengths))
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    return {
        "input_ids": torch.randint(3, 128, (1, sum(lengths)), generator=generator),
        "position_ids": torch.cat([torch.arange(n) for n in lengths])[None],
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": sum(lengths),
        "max_length_k": sum(lengths),
    }


def gradients(model: Any, row: dict[str, Any]) -> torch.Tensor:
    """All gradients of the mean logit square, as one vector."""
    model.zero_grad()
    torch.manual_seed(0)
    model(**row, use_cache=False).logits.square().mean().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def measure(family: str) -> Compiled:
    torch._dynamo.reset()
    counters.clear()
    try:
        model = small_model(family, "sdpa")
        lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
        blocks = max(lists, key=lambda m: sum(p.numel() for p in m.parameters()))
        rows = [arguments(lengths) for lengths in ROWS]
        expected = [gradients(model, row) for row in rows]
        kinds = len(set(getattr(model.config, "layer_types", None) or [None]))
        for block in blocks:
            block.forward = torch.compile(block.forward, backend="aot_eager")
        found = [gradients(model, row) for row in rows]
    except Exception as fault:  # an answer, too
        return Compiled(error=f"{type(fault).__name__}: {(str(fault).splitlines() or [''])[0]}"[:120])
    apart = max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))
    breaks = sum(counters["graph_break"].values())
    return Compiled(breaks, counters["stats"]["unique_graphs"], kinds, apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    chosen = parser.parse_args().families
    if not chosen:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        from autotune.facts.packing import is_dense

        chosen = [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if is_dense(name)]
    warnings.simplefilter("ignore")
    good = []
    for family in chosen:
        found = measure(family)
        good += [family] if found.passes else []
        told = found.error or (
            f"{found.breaks} breaks, {found.graphs} graphs for {found.kinds} kinds, {found.apart:.1e} apart"
        )
        print(f"{family:24} {'blocks' if found.passes else 'parts '} {told}", flush=True)
    print(", ".join(good))


if __name__ == "__main__":
    main()
