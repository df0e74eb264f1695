"""May examples share a row of the generated script? The isolation table decides, and the header says why."""

from __future__ import annotations

from autotune.facts.packing import Implementation, packing_verdict
from autotune.records.script import PackingContext

_WORDS = {
    "fast": "fast kernels",
    "fallback": "the torch fallback",
    "dense": "softmax attention only",
    None: "layers whose implementation is not known",
}


def packing_decision(
    model_type: str,
    implementation: Implementation | None,
    transformers_version: str | None,
    packing: PackingContext | None = None,
) -> PackingContext:
    """Fill `verdict` and `reason`; add `cu_seqlens` for the families that need it under this name.

    `implementation` is how the family's recurrent and convolution layers run (`dense`: it has none). What the
    table does not know stays `unknown`, and the script then pads one example a row.
    """
    packing = packing or PackingContext()
    family = model_type.removesuffix("_text")
    if implementation is None:
        return _decided(packing, "unknown", model_type, implementation, transformers_version)
    for extra in ([], ["cu_seqlens"]):
        arguments = list(dict.fromkeys([*packing.boundary_arguments, *extra]))
        verdict = packing_verdict(
            family, implementation, arguments, "varlen", 1, False, False, transformers_version
        )
        if verdict == "isolated":
            packing = packing.model_copy(update={"boundary_arguments": arguments})
            break
    return _decided(packing, verdict, model_type, implementation, transformers_version)


def _decided(
    packing: PackingContext,
    verdict: str,
    model_type: str,
    implementation: Implementation | None,
    version: str | None,
) -> PackingContext:
    words = {
        "isolated": "examples of a row stay apart",
        "leaks": "examples of a row would see each other",
        "unknown": "not known whether examples of a row stay apart",
    }
    where = f"{model_type} with {_WORDS[implementation]}, transformers {version or 'of unknown version'}"
    return packing.model_copy(update={"verdict": verdict, "reason": f"{where}: {words[verdict]}"})
