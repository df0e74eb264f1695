"""JUnit XML: every rule a test case, so that CI shows findings where it shows failed tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from autotune.records.findings import Finding
from autotune.records.terms import SEVERITIES, Severity
from autotune.report.sources import Sources

_GOOD_OUTCOMES = ("faster", "no-measurable-change")


def junit(sources: Sources, fail_on: Severity = "low") -> str:
    """Findings at or above `fail_on` fail, undecided rules and rules that do not apply are skipped."""
    diagnosis = sources.diagnosis
    limit = SEVERITIES.index(fail_on)
    suites = ET.Element("testsuites", name="autotune")
    suite = ET.SubElement(
        suites, "testsuite", name=_clean(sources.run.id), timestamp=sources.run.created.rstrip("Z")
    )
    failures = skipped = 0
    for finding in diagnosis.findings:
        case = _case(suite, finding.rule)
        if finding.sites:
            case.set("file", _clean(finding.sites[0].file))
            case.set("line", str(finding.sites[0].line))
        if SEVERITIES.index(finding.severity) >= limit:
            failures += 1
            failure = ET.SubElement(case, "failure", type=finding.severity, message=_clean(finding.title))
            failure.text = _clean(_told(finding))
        else:
            ET.SubElement(case, "system-out").text = _clean(_told(finding))
    for passed in diagnosis.passed:
        _case(suite, passed.rule)
    reasons: Iterable[tuple[str, str]] = [
        *((u.rule, f"undecided: {'; '.join(u.decided_by)}") for u in diagnosis.undecided),
        *((n.rule, f"does not apply: {n.reason}") for n in diagnosis.not_applicable),
    ]
    for rule, reason in reasons:
        skipped += 1
        ET.SubElement(_case(suite, rule), "skipped", message=_clean(reason))
    if sources.verdict is not None:
        case = _case(suite, "verify/patched-job")
        if sources.verdict.outcome not in _GOOD_OUTCOMES:
            failures += 1
            ET.SubElement(
                case, "failure", type=sources.verdict.outcome, message=_clean(sources.verdict.sentence)
            )
    for element in (suites, suite):
        element.set("tests", str(len(suite)))
        element.set("failures", str(failures))
        element.set("errors", "0")
        element.set("skipped", str(skipped))
    ET.indent(suites, " ")
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, rule: str) -> ET.Element:
    category, _, name = rule.partition("/")
    return ET.SubElement(suite, "testcase", classname=f"autotune.{category}", name=name or rule)


def _told(finding: Finding) -> str:
    lines = [finding.message.strip()]
    lines += [f"- {evidence.text}" for evidence in finding.evidence]
    lines += [f"at {site.file}:{site.line}" for site in finding.sites]
    lines += [f"fix: {fix.title}" for fix in finding.fixes[:1]]
    return "\n".join(lines)


def _clean(text: str) -> str:
    """XML has no place for control characters."""
    return "".join(c if c in "\n\t" or (c.isprintable() and c != "\ufffe") else " " for c in text)
