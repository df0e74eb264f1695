"""What of a model the generated script compiles: whole blocks of families known to have no graph breaks."""

from __future__ import annotations

from typing import Literal

from autotune.records.script import ScriptContext

# Families whose blocks were compiled without graph breaks and without a second compilation for packed rows
# and padded ones (bench/compile_breaks.py; torch 2.13, transformers 5.17).
WHOLE_BLOCKS = frozenset({"llama", "qwen3"})


def compiled_part(context: ScriptContext) -> tuple[Literal["blocks", "parts", "never"], str]:
    """What is compiled, and why: the answer to `memory.compile`, 'auto' included."""
    choice = context.memory.compile
    if choice != "auto":
        return choice, "as asked for"
    if context.precision.float8:
        return "blocks", "float8 needs it"
    if context.model.liger_layers:
        return "never", "Liger's layers are fused already"
    config = context.model.config or {}
    family = str(context.model.family or config.get("model_type") or "").removesuffix("_text")
    if family in WHOLE_BLOCKS:
        return "blocks", f"{family} blocks compile without graph breaks"
    if family:
        return "parts", f"not known whether {family} blocks compile without graph breaks"
    return "parts", "the model's family is not known"
