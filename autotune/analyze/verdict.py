"""The one sentence that opens every report."""

from __future__ import annotations

from autotune.records.facts import FactSheet
from autotune.records.findings import Finding, Passed, Undecided


def verdict_sentence(
    facts: FactSheet, findings: list[Finding], undecided: list[Undecided], passed: list[Passed]
) -> str:
    """Symptom, cause and what mending it is worth; or that nothing was found, and how much was checked."""
    causes = [f for f in findings if f.explained_by is None and f.severity not in ("info", "low")]
    if not causes:
        small = sum(f.severity == "low" for f in findings)
        return _healthy(facts, small, undecided, passed)
    opening = ""
    if facts.value("run.is_training") is False:
        opening = "This is not a training job: no backward pass and no optimizer step was seen. "
    return opening + _about(causes, facts, findings)


def _about(causes: list[Finding], facts: FactSheet, findings: list[Finding]) -> str:
    lead = causes[0]
    title = lead.title[0].lower() + lead.title[1:] if not _starts_with_name(lead.title) else lead.title
    symptom = _symptom(facts, lead, findings)
    sentence = f"{symptom} because {title}" if symptom else f"{lead.title}{_cost(lead)}"
    if lead.severity == "critical":
        sentence += ": the training result is wrong until that is mended"
    elif lead.gain.ratio_upper is not None and lead.gain.ratio_upper > 1.0:
        sentence += f"; fixing that is worth up to {_ratio(lead.gain.ratio_upper)}x"
    more = len(causes) - 1
    if more:
        sentence += f" ({more} more cause{'s' if more > 1 else ''} below)"
    return sentence + "."


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 1.1 else f"{value:.0f}" if value >= 10 else f"{value:.2g}"


# How a share of time is told, for causes whose title names no amount (padding's "a large part" does).
_TOLD = {
    "launch.idle_profiled_frac": "it idles {} of the profiled step",
    "comm.exposed_frac": "{} of the step is exposed communication",
    "data.loader_wait_frac": "{} of the step",
    "sync.wait_frac": "{} of the step",
    "sync.blocking_frac": "{} of the profiled step",
    "optimizer.step_frac": "{} of the step",
    "stall.log_frac": "{} of the step",
    "stall.beside_frac": "{} of the step",
    "stall.checkpoint_frac": "{} of the run",
    "stall.evaluation_frac": "{} of the run",
}


def _cost(lead: Finding) -> str:
    """The share of time that the finding's leading evidence gives, in brackets; empty where it gives none."""
    for evidence in lead.evidence[:2]:
        value = evidence.value
        if not isinstance(value, float):
            continue
        if evidence.fact == "launch.gpu_busy_frac" and lead.rule.startswith("launch/"):
            return f" (it idles {100 * (1 - value):.0f} % of the step)"
        if evidence.fact in _TOLD and value >= 0.02:
            return f" ({_TOLD[evidence.fact].format(f'{100 * value:.0f} %')})"
    return ""


def _symptom(facts: FactSheet, lead: Finding, findings: list[Finding]) -> str:
    """What the user would notice, when a matched symptom is explained by the leading cause."""
    if not any(f.explained_by == lead.rule and f.rule.startswith("launch/") for f in findings):
        return ""
    busy, profiled = facts.value("launch.gpu_busy_frac"), facts.value("launch.idle_profiled_frac")
    if isinstance(busy, float):
        working = facts.value("launch.gpu_working_frac")
        others = 100 * (busy - working) if isinstance(working, float) else 0.0
        ranks = f" and up to {others:.0f} % for other ranks" if others >= 5 else ""
        return f"The GPU waits for the CPU {100 * (1 - busy):.0f} % of each step{ranks}"
    if isinstance(profiled, float):
        return f"The GPU waits for the CPU {100 * profiled:.0f} % of the profiled step"
    return "The GPU waits for the CPU to launch work" if facts.value("launch.bound") is True else ""


def _healthy(facts: FactSheet, small: int, undecided: list[Undecided], passed: list[Passed]) -> str:
    if facts.value("run.is_training") is False:
        return (
            "This is not a training job: no backward pass and no optimizer step was seen. What could be "
            "checked without them is fine."
        )
    checked = len(passed)
    sentence = f"Nothing to do: {checked} check{'s' if checked != 1 else ''} passed"
    untimed = why_untimed(facts)
    if untimed:
        sentence = f"No step could be timed: {untimed}. {checked} checks that need no times passed"
        return f"{sentence}; {len(undecided)} could not be decided."
    mfu = facts.value("run.mfu_frac")
    busy = facts.value("launch.gpu_busy_frac")
    if isinstance(mfu, float):
        sentence += f", {100 * mfu:.0f} % of the device's peak is reached"
    elif isinstance(busy, float):
        sentence += f", the GPU is busy {100 * busy:.0f} % of the step"
    else:
        sentence += "; how near the step is to the device's limit is not known"
    if small:
        sentence += f"; {small} finding{'s' if small > 1 else ''} worth less than 3 %"
    if undecided:
        sentence += f"; {len(undecided)} could not be decided"
    return sentence + "."


def why_untimed(facts: FactSheet) -> str:
    """Why a watched job shows no step time; empty where it shows one, or where nobody watched it."""
    seen = facts.value("run.steps_seen")
    if facts.value("run.steps_timed") != 0 or not isinstance(seen, (int, float)) or not seen:
        return ""
    return f"only {seen:.0f} step{'s were' if seen != 1 else ' was'} seen, let the job train longer"


def _starts_with_name(title: str) -> bool:
    """True when the first word is a proper name or an acronym that keeps its capitals."""
    word = title.split(" ", 1)[0]
    return not word[1:].islower() and len(word) > 1
