"""May examples share a row? The isolation table decides, by family, implementation and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.records.script import PackingContext


def packing_decision(
    table: Mapping[str, Any], model_type: str, layers: str, packing: PackingContext | None = None
) -> PackingContext:
    """Fill `verdict` and `reason` from the packing-isolation table.

    `layers` is how the family's recurrent and convolution layers run in the job: `fast` (kernels), `fallback`
    (torch), `dense` (the family has none) or `unknown`. What the table does not know stays `unknown`.
    """
    packing = packing or PackingContext()
    family = table.get("families", {}).get(model_type)
    if family is None:
        return packing.model_copy(
            update={"verdict": "unknown", "reason": f"the isolation table has no family {model_type}"}
        )
    if "dense" in family:
        layers = "dense"
    column = family.get(layers) or {}
    arguments = set(packing.boundary_arguments)
    known = {
        "pos": {"position_ids"},
        "seq_idx": {"position_ids", "seq_idx"},
        "cu": {"position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"},
    }
    everything = known["seq_idx"] | known["cu"]
    if "any" in column:
        verdict, passed = column["any"], "any arguments"
    elif (
        "all_plus_cu_seqlens" in column
        and everything <= arguments | {"cu_seqlens"}
        and column["all"] != "isolated"
    ):
        packing = packing.model_copy(
            update={"boundary_arguments": [*packing.boundary_arguments, *({"cu_seqlens"} - arguments)]}
        )
        verdict, passed = column["all_plus_cu_seqlens"], "all boundary arguments and cu_seqlens"
    elif everything <= arguments:
        verdict, passed = column.get("all", "unknown"), "all boundary arguments"
    else:
        name = next((name for name, needed in known.items() if needed == arguments), None)
        verdict, passed = column.get(name, "unknown"), ", ".join(sorted(arguments)) or "no arguments"
    words = {"fast": "its fast kernels", "fallback": "the torch fallback", "dense": "attention layers only"}
    how = words.get(layers, "an unknown layer implementation")
    evidence = family.get("evidence", "none")
    reason = f"{model_type} with {how} and {passed}: {verdict} (isolation table, evidence: {evidence})"
    return packing.model_copy(update={"verdict": verdict, "reason": reason})
