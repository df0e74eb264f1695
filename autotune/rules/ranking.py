"""The order of findings: wrong training first, then by what a fix can gain; causes before their symptoms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.records.findings import Finding
from autotune.records.terms import SEVERITIES

_CONFIDENCE = {"high": 2, "medium": 1, "low": 0}
_SMALL = ("info", "low")
_Weight = tuple[int, float, int]


def ranked(findings: Sequence[Finding], causes: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Findings with their cause settled, most important first; `causes` lists what can explain each rule.

    A finding that is worth little itself explains nothing, and of several the weightiest explains.

    Findings that only work together stand together, at the place of the strongest of them, in the order they
    are applied. A symptom stands after everything that is not explained by something else.
    """
    by_rule = {finding.rule: finding for finding in findings}
    settled = [_with_cause(finding, causes.get(finding.rule, ()), by_rule) for finding in findings]
    leaders = _groups(settled)
    depths = _depths(by_rule)
    weights = {finding.rule: _weight(finding) for finding in settled}
    strongest: dict[str, _Weight] = {}
    for finding in settled:
        leader = leaders[finding.rule]
        if finding.explained_by is None:
            strongest[leader] = max(strongest.get(leader, weights[finding.rule]), weights[finding.rule])

    def key(finding: Finding) -> tuple[object, ...]:
        leader = leaders[finding.rule]
        own = weights[finding.rule]
        group = own if finding.explained_by else strongest.get(leader, own)
        return (
            finding.explained_by is not None,
            *(-part for part in group),
            "" if finding.explained_by else leader,
            depths[finding.rule],
            *(-part for part in own),
            finding.rule,
        )

    return sorted(settled, key=key)


def _with_cause(finding: Finding, causes: Sequence[str], by_rule: Mapping[str, Finding]) -> Finding:
    found = [by_rule[name] for name in causes if name in by_rule and by_rule[name].severity not in _SMALL]
    cause = max(found, key=_weight, default=None)  # the first one listed where several weigh the same
    return finding.model_copy(update={"explained_by": cause.rule if cause else None})


def _weight(finding: Finding) -> _Weight:
    gain = finding.gain.ratio_upper or 1.0
    return (SEVERITIES.index(finding.severity), gain, _CONFIDENCE[finding.confidence])


def _groups(findings: Sequence[Finding]) -> dict[str, str]:
    """Rule -> name of its group: findings that name each other in `together_with` share one."""
    parent = {finding.rule: finding.rule for finding in findings}

    def top(rule: str) -> str:
        while parent[rule] != rule:
            rule = parent[rule]
        return rule

    for finding in findings:
        for other in finding.together_with:
            if other in parent:
                first, second = sorted((top(finding.rule), top(other)))
                parent[second] = first
    return {rule: top(rule) for rule in parent}


def _depths(by_rule: Mapping[str, Finding]) -> dict[str, int]:
    """Length of the longest chain of `after` among the findings that ends at each."""
    before = {rule: [name for name in finding.after if name in by_rule] for rule, finding in by_rule.items()}
    depths = dict.fromkeys(by_rule, 0)
    for _ in by_rule:  # a chain is no longer than there are rules; loading refuses circles
        deeper = {
            rule: max((1 + depths[name] for name in names), default=0) for rule, names in before.items()
        }
        if deeper == depths:
            break
        depths = deeper
    return depths
