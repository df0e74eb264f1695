"""The catalogue pages of the documentation: every rule and every fact, from their own definitions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from autotune.rules.compile import LoadedRule
from autotune.rules.expression import Node, fact_names
from autotune.rules.parse import Catalogue

_HEADER = "<!-- Made by `autotune rules pages docs`; change the rule or the fact, not this page. -->\n"


def rules_page(rules: Iterable[LoadedRule]) -> str:
    """docs/rules.md."""
    groups: dict[str, list[LoadedRule]] = defaultdict(list)
    for loaded in sorted(rules, key=lambda one: one.id):
        groups[loaded.rule.category].append(loaded)
    total = sum(len(members) for members in groups.values())
    parts = [
        f"{_HEADER}# Rules\n",
        f"{total} rules in {len(groups)} groups. `autotune rules explain ID` shows a rule's condition with a "
        "run's values; [writing-rules.md](writing-rules.md) shows how to write one.\n",
        "Severity follows the bound on the gain where one can be computed: below 3 % low, up to 20 % medium, "
        "above high. `critical` means the training result is wrong, `info` is worth knowing.\n",
    ]
    for name, members in groups.items():
        parts.append(f"## {name}\n")
        parts += [_rule(loaded) for loaded in members]
    return "\n".join(parts)


def _rule(loaded: LoadedRule) -> str:
    rule = loaded.rule
    surfaces = ", ".join(dict.fromkeys(fix.surface for fix in rule.fix if fix.steps)) or "advice only"
    facts = list(dict.fromkeys(n for node in condition_nodes(loaded) for n in fact_names(node)))
    lines = [f"### {rule.id}\n", f"{rule.title}.\n"]
    lines.append(f"- severity {rule.severity}, confidence {rule.confidence}")
    lines.append(f"- fix: {surfaces}" + (f"; parity {rule.parity}" if rule.parity else ""))
    lines.append("- decided on " + ", ".join(f"`{name}`" for name in facts))
    silent = [_silence(e.name) for e in rule.examples if e.expect == "no-match"]
    if silent:
        lines.append("- silent when: " + "; ".join(silent))
    if rule.caution:
        lines.append("- caution: " + " ".join(rule.caution.split()))
    if rule.explained_by:
        lines.append("- a symptom of " + ", ".join(f"`{other}`" for other in rule.explained_by))
    if rule.references:
        lines.append("- " + ", ".join(f"<{reference}>" for reference in rule.references))
    return "\n".join(lines) + "\n"


def _silence(example: str) -> str:
    """The name of an example as what it shows; a condition as code."""
    condition = example.removeprefix("silent when ")
    return f"`{condition}`" if condition != example else example


def condition_nodes(loaded: LoadedRule) -> list[Node]:
    """Every condition of a rule."""
    return [*loaded.all, *loaded.any, *loaded.none, *loaded.unless]


def facts_page(catalogue: Catalogue, rules: Iterable[LoadedRule] = ()) -> str:
    """docs/facts.md."""
    used: Counter[str] = Counter()
    for loaded in rules:
        used.update({name for node in condition_nodes(loaded) for name in fact_names(node)})
    groups: dict[str, list[str]] = defaultdict(list)
    for name, entry in catalogue.items():
        unit = f" [{entry.unit}]" if entry.unit else ""
        choices = f" ({', '.join(entry.choices)})" if entry.choices else ""
        count = str(used[name]) if used[name] else ""
        groups[name.split(".", 1)[0]].append(
            f"| `{name}` | {entry.type}{unit} | {entry.meaning}{choices} | {entry.source} | {count} |"
        )
    parts = [
        f"{_HEADER}# Facts\n",
        f"{len(catalogue)} facts. A fact is a value, absent (nothing measured it), or not applicable (it has "
        "no meaning for this job). Absent is never zero. `autotune facts --run RUN` shows a run's values.\n",
    ]
    for group, rows in groups.items():
        parts.append(f"## {group}\n\n| fact | type | meaning | source | rules |\n|---|---|---|---|---|")
        parts += rows
        parts.append("")
    return "\n".join(parts)
