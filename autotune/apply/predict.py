"""The facts as they are expected to be after some changes: what a later member of a group is judged on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autotune.records.facts import FactScalar, FactValue
from autotune.records.findings import Fix, FixStep

if TYPE_CHECKING:
    from autotune.rules.truth import Operand

_VERDICT = "packing.verdict"
_WITH_KERNELS = "packing.verdict_with_fast_kernels"
_KERNELS = ("kernels.linear_attention", "kernels.causal_conv")
_PACKING_SHIMS = ("packed_batches", "token_rows", "filled_rows")
_PACKING_SETTINGS = ("packing", "padding_free", "neat_packing", "sample_packing")


class State:
    """Facts of a run with the predictions of the members admitted so far."""

    def __init__(self, facts: Mapping[str, FactValue]) -> None:
        self._facts = facts
        self._predicted: dict[str, FactScalar] = {}

    def value(self, name: str) -> FactScalar | list[str] | None:
        """Predicted or observed value of a fact; None when it has none."""
        if name == _VERDICT:
            return self._verdict()
        return self._predicted.get(name, self._observed(name))

    def reason_against(self, fix: Fix) -> str:
        """Why the fix would be wrong in this state; empty when it would not."""
        from autotune.facts.catalogue import catalogue
        from autotune.rules.parse import parse_condition

        if not fix.requires and packs(fix.steps) and self.value(_VERDICT) != "isolated":
            verdict = self.value(_VERDICT)
            return f"packing is not known to keep examples apart here (packing.verdict is {verdict})"
        facts = self._operands()
        for text in fix.requires:
            node, flaws = parse_condition(text, catalogue())
            if node is None or flaws:
                return f"the condition '{text}' cannot be read"
            truth = node.truth(facts)
            if truth is not True:
                known = "is not met" if truth is False else "cannot be decided"
                return f"{text} {known} after the changes before it{self._shown(text)}"
        return ""

    def apply(self, fix: Fix) -> None:
        """Take over what the fix predicts."""
        for name, value in fix.predicts.items():
            if isinstance(value, str) and value.startswith("="):
                found = self.value(value[1:])
                if not isinstance(found, (bool, int, float, str)):
                    continue
                value = found
            self._predicted[name] = value

    def changed(self) -> dict[str, FactValue]:
        """Facts that are expected to differ, as predictions."""
        names = dict.fromkeys([*self._predicted, *([_VERDICT] if self._predicted else [])])
        out = {}
        for name in names:
            value = self.value(name)
            if value is not None and value != self._observed(name):
                out[name] = FactValue(
                    state="value", value=value, source="predicted", basis="the group's changes"
                )
        return out

    def _observed(self, name: str) -> FactScalar | list[str] | None:
        fact = self._facts.get(name)
        return fact.value if fact is not None and fact.state == "value" else None

    def _verdict(self) -> FactScalar | list[str] | None:
        """Whether packed examples stay apart: fused kernels decide, and one torch fallback spoils it."""
        observed = self._observed(_VERDICT)
        touched = any(name in self._predicted for name in _KERNELS)
        if not touched:
            return self._predicted.get(_VERDICT, observed)
        if any(self.value(name) == "fallback" for name in _KERNELS):
            return "leaks"
        return self._observed(_WITH_KERNELS) or "unknown"

    def _operands(self) -> dict[str, Operand]:
        from autotune.rules.truth import NOT_APPLICABLE

        facts: dict[str, Operand] = {}
        for name, fact in self._facts.items():
            if fact.state == "not-applicable":
                facts[name] = NOT_APPLICABLE
            elif fact.state == "value" and fact.value is not None:
                facts[name] = fact.value
        facts.update(self._predicted)
        verdict = self.value(_VERDICT)
        if verdict is not None:
            facts[_VERDICT] = verdict
        return facts

    def _shown(self, text: str) -> str:
        names = [name for name in {*self._facts, *self._predicted} if name in text]
        values = [f"{name} is {self.value(name)}" for name in sorted(names, key=text.index)]
        return f" ({', '.join(values)})" if values else ""


def packs(steps: list[FixStep]) -> bool:
    """Whether these steps put several examples into one row."""
    for step in steps:
        arguments = step.arguments
        template = str(arguments.get("template"))
        if step.action == "use_shim" and any(name in template for name in _PACKING_SHIMS):
            return True
        keywords = arguments.get("keywords")
        given = keywords if isinstance(keywords, Mapping) else {}
        if any(given.get(name) in ("True", True) for name in _PACKING_SETTINGS):
            return True
        name = str(arguments.get("name", arguments.get("key", ""))).lstrip("-").replace("-", "_")
        switched_on = str(arguments.get("value")).lower() != "false"
        if step.action in ("set_flag", "set_key") and name.rpartition(".")[2] in _PACKING_SETTINGS:
            return switched_on
    return False
