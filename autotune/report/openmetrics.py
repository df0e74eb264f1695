"""OpenMetrics text: the figures of a run for Prometheus' textfile collector or a push gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from autotune.console import printable
from autotune.records.terms import SEVERITIES
from autotune.report.figures import number
from autotune.report.sources import Sources
from autotune.version import __version__

# metric (unit last, in base units), fact, factor, what it is
_FIGURES = (
    ("step_seconds", "run.step_ms", 1e-3, "Median unprofiled optimizer step of the slowest rank"),
    ("useful_tokens_per_second", "run.useful_tokens_per_s", 1.0, "Non-padding tokens per second, all ranks"),
    ("tokens_per_second", "run.all_tokens_per_s", 1.0, "Tokens with padding per second, all ranks"),
    ("gpu_busy_ratio", "launch.gpu_busy_frac", 1.0, "GPU busy time over the unprofiled step"),
    ("mfu_ratio", "run.mfu_frac", 1.0, "Model FLOP/s over the device's dense peak"),
    ("gpu_utilisation_ratio", "device.utilisation_frac", 1.0, "What nvidia-smi calls utilisation"),
    ("memory_peak_reserved_bytes", "memory.peak_reserved_gib", 1024.0**3, "Peak reserved memory, worst rank"),
    ("padding_ratio", "data.padding_frac", 1.0, "Share of batch tokens that are padding"),
    ("loader_wait_ratio", "data.loader_wait_frac", 1.0, "Share of the step spent waiting for a batch"),
    ("projected_seconds", "run.projected_hours", 3600.0, "The whole job as projected"),
)
_Sample = tuple[dict[str, str], float]


def openmetrics(sources: Sources) -> str:
    """The whole exposition, `# EOF` included; figures that are not known are left out, never zero."""
    run = {"run": sources.run.id}
    facts, diagnosis = sources.facts, sources.diagnosis
    lines: list[str] = []
    labels = {**run, "autotune": __version__, "state": sources.run.state}
    lines += ["# TYPE autotune_run info", "# HELP autotune_run The run these figures are of."]
    lines.append(f"autotune_run_info{_labels(labels)} 1")
    for metric, fact, factor, means in _FIGURES:
        value = number(facts, fact)
        if value is not None:
            lines += _gauge(metric, means, [(run, value * factor)])
    severities = Counter(finding.severity for finding in diagnosis.findings)
    counts: list[_Sample] = [({**run, "severity": s}, float(severities[s])) for s in SEVERITIES]
    lines += _gauge("findings", "Findings by severity", counts)
    bounds: list[_Sample] = [
        ({**run, "rule": f.rule, "severity": f.severity}, f.gain.ratio_upper)
        for f in diagnosis.findings
        if f.gain.ratio_upper is not None
    ]
    lines += _gauge("finding_gain_upper_ratio", "At most this many times as fast without the cause", bounds)
    outcomes = (
        ("matched", len(diagnosis.findings)),
        ("passed", len(diagnosis.passed)),
        ("undecided", len(diagnosis.undecided)),
        ("not-applicable", len(diagnosis.not_applicable)),
    )
    rules: list[_Sample] = [({**run, "outcome": name}, float(count)) for name, count in outcomes]
    lines += _gauge("rules", "Rules by outcome", rules)
    lines += _gauge("speedup_ratio", "Measured: how many times as fast", _speedup(sources, run))
    return "\n".join([*lines, "# EOF", ""])


def _speedup(sources: Sources, run: dict[str, str]) -> list[_Sample]:
    """The ratio that was proven, with the ends of its interval."""
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    if sources.ladder is not None and len(sources.ladder.rungs) > 1:
        last = sources.ladder.rungs[-1]
        ratio, interval = last.ratio_to_first, last.interval_to_first
    elif sources.verdict is not None:
        ratio, interval = sources.verdict.ratio, sources.verdict.interval
    if ratio is None:
        return []
    ends = zip(("low", "high"), interval or (), strict=False)
    return [({**run, "bound": "estimate"}, ratio), *(({**run, "bound": name}, end) for name, end in ends)]


def _gauge(name: str, means: str, samples: Iterable[_Sample]) -> list[str]:
    rows = [f"autotune_{name}{_labels(labels)} {value!r}" for labels, value in samples]
    if not rows:
        return []
    return [f"# TYPE autotune_{name} gauge", f"# HELP autotune_{name} {means}.", *rows]


def _labels(labels: dict[str, str]) -> str:
    def escaped(text: str) -> str:
        return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{key}="{escaped(value)}"' for key, value in labels.items()) + "}"
