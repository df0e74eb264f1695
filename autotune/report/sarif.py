"""SARIF 2.1.0: findings as annotations at the user's lines, for code scanning and editors."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.records.findings import CodeSite, Finding
from autotune.records.terms import Severity
from autotune.report.sources import Sources
from autotune.version import __version__

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL: dict[Severity, str] = {
    "critical": "error",
    "high": "warning",
    "medium": "warning",
    "low": "note",
    "info": "note",
}
_BASE = "SRCROOT"


def sarif(sources: Sources) -> str:
    """One SARIF log with one run."""
    findings = sources.diagnosis.findings
    rules = list(dict.fromkeys(finding.rule for finding in findings))
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "autotune",
                "version": __version__,
                "rules": [_rule(next(f for f in findings if f.rule == rule)) for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(sources)],
        "results": [
            _result(finding, rules.index(finding.rule), sources, place)
            for finding in findings
            for place in _places(finding)
        ],
        "properties": {"verdict": sources.diagnosis.verdict, "run": sources.run.id},
    }
    if sources.run.cwd:
        run["originalUriBaseIds"] = {_BASE: {"uri": Path(sources.run.cwd).as_uri() + "/"}}
    log = {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _places(finding: Finding) -> Sequence[CodeSite | None]:
    return finding.sites or [None]


def _invocation(sources: Sources) -> dict[str, Any]:
    words = sources.run.command or sources.run.traces
    return {
        "executionSuccessful": sources.run.state != "failed",
        "commandLine": shlex.join(words),
        "startTimeUtc": sources.run.created,
    }


def _rule(finding: Finding) -> dict[str, Any]:
    help_text = finding.message.strip() + (
        f"\n\nCaution: {finding.caution.strip()}" if finding.caution else ""
    )
    return {
        "id": finding.rule,
        "shortDescription": {"text": finding.title},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": _LEVEL[finding.severity]},
        "properties": {"tags": ["performance", finding.rule.split("/", 1)[0]]},
    }


def _result(finding: Finding, index: int, sources: Sources, site: CodeSite | None) -> dict[str, Any]:
    location = _location(site, sources)
    seed = f"{finding.rule}\0{site.file if site else ''}\0{site.code if site else ''}"
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVEL[finding.severity],
        "message": {"text": _message(finding)},
        "partialFingerprints": {"autotuneFinding/v1": hashlib.sha256(seed.encode()).hexdigest()},
        "properties": {
            "severity": finding.severity,
            "confidence": finding.confidence,
            "ratioUpper": finding.gain.ratio_upper,
            "explainedBy": finding.explained_by,
            "evidence": [evidence.text for evidence in finding.evidence],
        },
    }
    if location is not None:
        result["locations"] = [location]
    return result


def _message(finding: Finding) -> str:
    text = " ".join(finding.message.split()) or finding.title
    if finding.gain.ratio_upper is not None and finding.gain.ratio_upper >= 1.005:
        text += f" Worth up to {finding.gain.ratio_upper:.2f}x."
    if finding.fixes:
        text += f" Fix: {finding.fixes[0].title}."
    return re.sub(r"\[(?=[^\[\]]*\]\()", r"\\[", text)  # foreign text must not become a link


def _location(site: CodeSite | None, sources: Sources) -> dict[str, Any] | None:
    """The call; for a finding without one the script that was started, or the trace that was read."""
    if site is not None:
        region: dict[str, Any] = {"startLine": site.line}
        for key, value in (
            ("startColumn", site.column),
            ("endLine", site.end_line),
            ("endColumn", site.end_column),
        ):
            if value is not None:
                region[key] = value
        if site.code:
            region["snippet"] = {"text": site.code}
        return {"physicalLocation": {"artifactLocation": _artifact(site.file, sources), "region": region}}
    script = next((word for word in sources.run.command if word.endswith(".py")), None)
    if script is not None:
        artifact = _artifact(str(Path(sources.run.cwd) / script), sources)
        return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": 1}}}
    if sources.run.traces:
        return {"physicalLocation": {"artifactLocation": _artifact(sources.run.traces[0], sources)}}
    return None


def _artifact(file: str, sources: Sources) -> dict[str, Any]:
    """Relative to the folder the job was started in where the file lies below it."""
    from urllib.parse import quote

    path = Path(file)
    if not path.is_absolute():
        return {"uri": quote(path.as_posix()), **({"uriBaseId": _BASE} if sources.run.cwd else {})}
    if sources.run.cwd and path.is_relative_to(sources.run.cwd):
        return {"uri": quote(path.relative_to(sources.run.cwd).as_posix()), "uriBaseId": _BASE}
    return {"uri": path.as_uri()}
