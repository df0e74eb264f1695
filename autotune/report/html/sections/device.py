"""What the GPUs did while the job ran: utilisation beside real use, clocks, temperature, power, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from autotune.records.observation import DeviceSample, Observation
from autotune.report.html.gather import Material
from autotune.report.html.plots import Curve, Level, Panel, Panels, Span
from autotune.report.html.sections.steps import WINDOWS, window_span
from autotune.report.html.view import Block, Figure, Note, Section, Table
from autotune.report.html.words import amount, number_of, percent, plural

_COLOURS = ("blue", "orange", "green", "purple", "pink", "teal", "gold", "gray")
_POINTS = 400
_Field = Callable[[DeviceSample], float | None]
_FIELDS: tuple[tuple[str, str, _Field], ...] = (
    ("utilisation", "", lambda s: s.utilisation_frac),
    ("SM clock", "MHz", lambda s: s.sm_clock_mhz),
    ("temperature", "°C", lambda s: s.temperature_c),
    ("power", "W", lambda s: s.power_w),
    ("memory used", "GiB", lambda s: s.memory_used_gib),
)


def section(material: Material) -> Section | None:
    """None when no GPU was sampled."""
    observation = material.before.observation
    if observation is None or not observation.device_samples:
        return None
    gpus = sorted({sample.gpu for sample in observation.device_samples})[: len(_COLOURS)]
    start = min(sample.at_s for sample in observation.device_samples)
    by_gpu = {gpu: thin([s for s in observation.device_samples if s.gpu == gpu], _POINTS) for gpu in gpus}
    facts = material.diagnosis.facts
    panels = []
    for title, unit, field in _FIELDS:
        panel = _panel(title, unit, field, by_gpu, start)
        if panel is not None:
            panels.append(panel)
    if not panels:
        return None
    mfu = number_of(facts, "run.mfu_frac")
    if mfu is not None and panels[0].percent:
        level = Level(f"share of peak FLOP/s in use (MFU): {percent(mfu)}", mfu, "red")
        panels[0] = Panel(
            panels[0].y_title, panels[0].curves, [level], percent=True, from_zero=True, top=panels[0].top
        )
    blocks: list[Block] = [_figure(panels, by_gpu, mfu, _spans(observation, start))]
    throttled = sorted({reason for s in observation.device_samples for reason in s.throttle_reasons or ()})
    if throttled:
        share = sum(bool(s.throttle_reasons) for s in observation.device_samples) / len(
            observation.device_samples
        )
        names = ", ".join(throttled).replace("_", " ")
        blocks.append(Note(f"Slowed down in {percent(share)} of the samples: {names}.", "caution"))
    others = max((s.foreign_processes or 0 for s in observation.device_samples), default=0)
    if others:
        blocks.append(Note(f"Up to {plural(others, 'other process')} on the same GPUs.", "caution"))
    return Section(
        "device",
        "GPU over time",
        blocks,
        "Utilisation, as nvidia-smi shows it, is the share of time in which any kernel ran, "
        "however little of the GPU it used.",
    )


def thin(samples: Sequence[DeviceSample], most: int) -> list[DeviceSample]:
    """Evenly fewer samples; the first and the last stay."""
    ordered = sorted(samples, key=lambda sample: sample.at_s)
    if len(ordered) <= most:
        return ordered
    step = (len(ordered) - 1) / (most - 1)
    return [ordered[round(at * step)] for at in range(most)]


def _panel(
    title: str, unit: str, field: _Field, by_gpu: dict[int, list[DeviceSample]], start: float
) -> Panel | None:
    curves = []
    for (gpu, samples), colour in zip(by_gpu.items(), _COLOURS, strict=False):
        values = [field(sample) for sample in samples]
        if any(value is not None for value in values):
            curves.append(Curve(f"GPU {gpu}", [s.at_s - start for s in samples], values, colour))
    if not curves:
        return None
    share = not unit
    levels = []
    if title == "SM clock":
        tops = [s.sm_clock_max_mhz for samples in by_gpu.values() for s in samples if s.sm_clock_max_mhz]
        if tops:
            levels.append(Level(f"highest clock: {max(tops):,.0f} MHz", max(tops), "gray"))
    return Panel(
        title if share else f"{title}, {unit}",
        curves,
        levels,
        percent=share,
        from_zero=title not in ("temperature", "SM clock"),
        top=1.0 if share else None,
    )


def _figure(
    panels: list[Panel], by_gpu: dict[int, list[DeviceSample]], mfu: float | None, spans: list[Span]
) -> Figure:
    rows = []
    for gpu, samples in by_gpu.items():
        for title, unit, field in _FIELDS:
            values = [value for sample in samples if (value := field(sample)) is not None]
            if values:
                shown = percent if not unit else lambda value, unit=unit: f"{amount(value)} {unit}"
                low, high = shown(min(values)), shown(max(values))
                rows.append([f"GPU {gpu}", title, low, shown(sum(values) / len(values)), high])
    use = [v for samples in by_gpu.values() for s in samples if (v := s.utilisation_frac) is not None]
    said = f"mean utilisation {percent(sum(use) / len(use))}" if use else "no utilisation was recorded"
    if mfu is not None:
        said += f", MFU {percent(mfu)}"
    return Figure(
        "device-figure",
        "GPU samples",
        f"Curves of GPU utilisation, clocks, temperature, power and memory over the run: {said}.",
        Panels("seconds", panels, spans),
        Table("GPU samples", ["GPU", "", "lowest", "mean", "highest"], rows, frozenset({2, 3, 4})),
        "MFU is of the timed steps." if mfu is not None else "",
    )


def _spans(observation: Observation, start: float) -> list[Span]:
    """The timed and the profiled stretch; samples and steps share the machine's clock."""
    if not observation.ranks:
        return []
    windows = sorted(observation.ranks[0].windows, key=lambda window: window.synced_s)
    last = max(sample.at_s for sample in observation.device_samples)
    return [
        window_span(one.name, one.synced_s - start, next_.synced_s - start)
        for one, next_ in pairwise(windows)
        if one.name in WINDOWS and start <= one.synced_s < next_.synced_s <= last
    ]
