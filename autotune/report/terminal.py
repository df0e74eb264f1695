"""A diagnosis as one terminal screen: verdict, figures, findings by gain, what passed, what is undecided."""

from __future__ import annotations

import textwrap
from collections import Counter

from autotune.records.findings import Diagnosis, Finding

_WIDTH = 80
_MARK = {"critical": "!!", "high": "! ", "medium": "* ", "low": "- ", "info": "i "}


def render_diagnosis(diagnosis: Diagnosis, *, run_hint: str = "", details: bool = True) -> str:
    """The report as text of at most 80 columns. `run_hint` is how the user names this run ("" for latest)."""
    lines = [*_wrap(diagnosis.verdict), ""]
    lines += _figures(diagnosis)
    lines += _step_bar(diagnosis)
    shown = [f for f in diagnosis.findings if details or f.severity != "info"]
    if shown:
        lines += ["", f"Findings ({len(shown)}), the most important first:"]
        for number, finding in enumerate(shown, 1):
            lines += _finding(number, finding, run_hint)
    if diagnosis.passed:
        counts = Counter(p.rule.split("/", 1)[0] for p in diagnosis.passed)
        names = ", ".join(f"{category} {count}" for category, count in counts.items())
        head = f"Checked, nothing to report ({len(diagnosis.passed)}): {names}; --json names each rule"
        lines += ["", *_wrap(head, hang=2)]
    if diagnosis.undecided:
        lines += ["", f"Could not be decided ({len(diagnosis.undecided)}):"]
        groups: dict[str, list[str]] = {}
        for item in diagnosis.undecided:
            groups.setdefault("; ".join(item.decided_by) or "unknown", []).append(item.rule)
        for how, rules in groups.items():
            lines += _wrap(f"  {', '.join(rules)}: {how}", hang=4)
    for note in diagnosis.notes:
        lines += ["", *_wrap(f"Note: {note}", hang=6)]
    return "\n".join(lines)


def _figures(diagnosis: Diagnosis) -> list[str]:
    facts = diagnosis.facts

    def number(name: str) -> float | None:
        fact = facts.get(name)
        value = fact.value if fact is not None else None
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    rows: list[tuple[str, str]] = []
    step = number("run.step_ms")
    if step is not None:
        timed = number("run.steps_timed")
        rows.append(("step", f"{step:,.0f} ms (median of {timed:.0f} unprofiled steps)"))
    useful, padded = number("run.useful_tokens_per_s"), number("run.all_tokens_per_s")
    if useful is not None:
        extra = f" ({padded:,.0f} with padding)" if padded is not None and padded > useful * 1.01 else ""
        rows.append(("useful tokens/s", f"{useful:,.0f}{extra}"))
    use: list[str] = []
    for name, label in (
        ("device.utilisation_frac", "nvidia-smi utilisation"),
        ("launch.gpu_busy_frac", "GPU busy"),
        ("run.mfu_frac", "of peak FLOP/s (MFU)"),
    ):
        value = number(name)
        if value is not None:
            use.append(f"{100 * value:.0f} % {label}")
    if use:
        rows.append(("use of the GPU", ", ".join(use)))
    peak, device = number("memory.peak_reserved_gib"), number("memory.device_gib")
    if peak is not None and device is not None:
        rows.append(("memory", f"{peak:.1f} of {device:.1f} GiB at the peak"))
    hours = number("run.projected_hours")
    if hours is not None:
        basis = facts["run.projected_hours"].basis
        rows.append(("whole job", f"{_hours(hours)} projected ({basis})"))
    width = max((len(label) for label, _ in rows), default=0)
    lines: list[str] = []
    for label, text in rows:
        lines += _wrap(f"{label:<{width}}  {text}", hang=width + 2)
    return lines


def _step_bar(diagnosis: Diagnosis) -> list[str]:
    """How one step's time is spent, where that is known."""
    facts = diagnosis.facts

    def share(name: str) -> float | None:
        fact = facts.get(name)
        return float(fact.value) if fact is not None and isinstance(fact.value, float) else None

    busy, loader = share("launch.gpu_busy_frac"), share("data.loader_wait_frac")
    optimizer = share("optimizer.step_frac")
    parts: list[tuple[str, float, str]] = []
    if busy is not None:
        exposed = min(share("comm.exposed_frac") or 0.0, busy)
        parts = [("GPU computing", busy - exposed, "#")]
        if exposed > 0.005:
            parts.append(("exposed communication", exposed, "="))
        waits = min(loader or 0.0, 1.0 - busy)
        if waits > 0.005:
            parts.append(("waiting for data", waits, ":"))
        parts.append(("GPU idle", max(0.0, 1.0 - busy - waits), "."))
    elif loader is not None and optimizer is not None:
        parts = [
            ("forward and backward", max(0.0, 1.0 - loader - optimizer), "#"),
            ("optimizer", optimizer, "="),
            ("waiting for data", loader, ":"),
        ]
    if not parts:
        return []
    cells = 60
    bar = "".join(mark * round(cells * part) for _, part, mark in parts)
    legend = "  ".join(f"{mark} {label} {100 * part:.0f} %" for label, part, mark in parts)
    return ["", f"one step  [{bar[:cells]:<{cells}}]", *_wrap(f"          {legend}", hang=10)]


def _finding(number: int, finding: Finding, run_hint: str) -> list[str]:
    head = f"{number:>2}. {_MARK[finding.severity]}{finding.title}"
    lines = ["", *_wrap(head, hang=6)]
    facts = [f"{finding.rule}, {finding.severity}, confidence {finding.confidence}"]
    if finding.gain.ratio_upper is not None:
        facts.append(f"worth at most {finding.gain.ratio_upper:.2f}x ({finding.gain.basis})")
    if finding.explained_by:
        facts.append(f"explained by {finding.explained_by}")
    for fact in facts:
        lines += _wrap(f"      {fact}", hang=6)
    for paragraph in finding.message.strip().split("\n\n"):
        lines += _wrap("      " + " ".join(paragraph.split()), hang=6)
    for evidence in finding.evidence:
        basis = f" ({evidence.basis})" if evidence.basis else ""
        lines += _wrap(f"      - {evidence.text}{basis}", hang=8)
    for site in finding.sites[:3]:
        lines += _wrap(f"      at {site.file}:{site.line}  {site.code}".rstrip(), hang=9)
    if len(finding.sites) > 3:
        lines.append(f"      and {len(finding.sites) - 3} more places")
    if finding.fixes:
        fix = finding.fixes[0]
        lines += _wrap(f"      fix: {fix.title} [{fix.surface}, {fix.applicability}]", hang=11)
        if fix.steps:
            lines.append(f"      try: autotune apply{run_hint} --select {finding.rule}")
    if finding.caution:
        lines += _wrap("      caution: " + " ".join(finding.caution.split()), hang=15)
    return lines


def _hours(hours: float) -> str:
    minutes = round(hours * 60)
    if minutes < 1:
        return f"{hours * 3600:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _wrap(text: str, hang: int = 0) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    ) or [""]
