"""The figures above the findings: speed, real use of the GPU, where a step's time goes, the whole job."""

from __future__ import annotations

from autotune.records.facts import FactSheet
from autotune.records.findings import Finding
from autotune.report.wrapping import WIDTH, durations, money, wrap

_CELLS = 60
# Attention kernels that multiply on the matrix units; eager attention does so inside matrix products.
_MATRIX_ATTENTION = ("flash", "cudnn", "efficient")


def number(facts: FactSheet, name: str) -> float | None:
    """A numeric fact; None when it is absent or does not apply."""
    value = facts.value(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def figures(facts: FactSheet, findings: list[Finding], price_per_gpu_hour: float | None) -> list[str]:
    """One line per figure that is known."""
    rows: list[tuple[str, str]] = []
    step = number(facts, "run.step_ms")
    if step is not None:
        timed = number(facts, "run.steps_timed")
        basis = f" (median of {timed:.0f} unprofiled steps)" if timed is not None else ""
        rows.append(("step", f"{step:,.0f} ms{basis}"))
    useful, padded = number(facts, "run.useful_tokens_per_s"), number(facts, "run.all_tokens_per_s")
    if useful is not None:
        extra = f" ({padded:,.0f} with padding)" if padded is not None and padded > useful * 1.01 else ""
        rows.append(("useful tokens/s", f"{useful:,.0f}{extra}"))
    elif padded is not None:
        rows.append(("tokens/s", f"{padded:,.0f} (padding, if any, is not told from text)"))
    elif (examples := number(facts, "run.examples_per_s")) is not None:
        rows.append(("examples/s", f"{examples:,.{0 if examples >= 10 else 2}f}"))
    rows += _use_of_gpu(facts)
    peak, device = number(facts, "memory.peak_reserved_gib"), number(facts, "memory.device_gib")
    if peak is not None and device is not None:
        rows.append(("memory", f"{peak:.1f} of {device:.1f} GiB at the peak"))
    rows += _whole_job(facts, findings, price_per_gpu_hour)
    width = max((len(label) for label, _ in rows), default=0)
    return [line for label, text in rows for line in wrap(f"{label:<{width}}  {text}", hang=width + 2)]


def _use_of_gpu(facts: FactSheet) -> list[tuple[str, str]]:
    """What nvidia-smi says beside what is really used."""
    rows = []
    said = number(facts, "device.utilisation_frac")
    if said is not None:
        rows.append(("nvidia-smi says", f"{100 * said:.0f} % utilisation"))
    real = []
    busy = number(facts, "launch.gpu_busy_frac")
    if busy is not None:
        real.append(f"GPU busy {100 * busy:.0f} % of the step")
    matrix = matrix_unit_frac(facts)
    if matrix is not None:
        share = matrix * busy if busy is not None else matrix
        of = "of the step" if busy is not None else "of the GPU's busy time"
        units = "matrix cores" if facts.value("device.vendor") == "amd" else "tensor cores"
        real.append(f"{units} {100 * share:.0f} % {of}")
    mfu = number(facts, "run.mfu_frac")
    if mfu is not None:
        real.append(f"{100 * mfu:.0f} % of the peak FLOP/s (MFU)")
    if real:
        rows.append(("real use", ", ".join(real)))
    return rows


def matrix_unit_frac(facts: FactSheet) -> float | None:
    """Share of GPU busy time in kernels that compute on matrix units; None where formats are unknown."""
    products, plain = number(facts, "kernels.gemm_frac"), number(facts, "precision.fp32_gemm_frac")
    if products is None or (plain is None and products > 0):
        return None
    share = products * max(0.0, 1.0 - (plain or 0.0) - (number(facts, "precision.fp64_gemm_frac") or 0.0))
    share += number(facts, "kernels.matrix_conv_frac") or 0.0
    if facts.value("attention.backend") in _MATRIX_ATTENTION:
        share += number(facts, "attention.gpu_frac") or 0.0
    return min(1.0, share)


def _whole_job(
    facts: FactSheet, findings: list[Finding], price_per_gpu_hour: float | None
) -> list[tuple[str, str]]:
    """Projected hours now and at best, and what they cost."""
    hours = number(facts, "run.projected_hours")
    if hours is None:
        return []
    basis = facts.get("run.projected_hours").basis
    best = best_ratio(findings)
    now, *then = durations(hours) if best is None else durations(hours, hours / best)
    rows = [("whole job", f"{now} projected" + (f" ({basis})" if basis else ""))]
    rows += [("", f"{each} at best, were the first cause gone (a bound, not a promise)") for each in then]
    cost = cost_line(facts, hours, best, price_per_gpu_hour)
    if cost:
        rows.append(("cost", cost))
    return rows


def best_ratio(findings: list[Finding]) -> float | None:
    """The bound of the leading cause; bounds of several causes do not simply multiply."""
    for finding in findings:
        if finding.explained_by is None and finding.severity not in ("info", "critical"):
            ratio = finding.gain.ratio_upper
            return ratio if ratio is not None and ratio > 1.0 else None
    return None


def price_per_hour(facts: FactSheet, price_per_gpu_hour: float | None) -> float | None:
    """What an hour of the job costs: a GPU for each rank. None without a price or a GPU."""
    ranks = number(facts, "run.world_size")
    if price_per_gpu_hour is None or facts.value("run.has_gpu") is not True or ranks is None:
        return None
    return ranks * price_per_gpu_hour


def cost_line(facts: FactSheet, hours: float, best: float | None, price_per_gpu_hour: float | None) -> str:
    """What the whole job costs, now and at best."""
    price = price_per_hour(facts, price_per_gpu_hour)
    if price is None:
        return "" if price_per_gpu_hour is None else "none: the job uses no GPU"
    now, gpus = hours * price, number(facts, "run.world_size")
    text = f"{money(now)} ({gpus:.0f} GPU{'s' if gpus != 1 else ''} at {price_per_gpu_hour:g} an hour each)"
    return text + (f"; {money(now / best)} at best" if best is not None else "")


def step_bar(facts: FactSheet) -> list[str]:
    """How one step's time is spent, as a bar of characters with its legend."""
    title, parts = _parts(facts)
    parts = [part for part in parts if part[1] > 0.005]
    if not parts:
        return []
    bar = "".join(mark * cells for (_, _, mark), cells in zip(parts, _cells(parts), strict=True))
    lead = len(title) + 2
    lines = [""]
    for label, part, mark in parts:
        entry = f"{mark} {label} {100 * part:.0f} %"
        joined = f"{lines[-1]}  {entry}" if lines[-1] else entry
        if lead + len(joined) <= WIDTH:
            lines[-1] = joined
        else:
            lines.append(entry)
    return ["", f"{title}  [{bar}]", *(" " * lead + line for line in lines)]


_Part = tuple[str, float, str]  # label, share of the step, mark
_WORTH_A_PART = 0.03  # of a step: what the loop does beside training


def _parts(facts: FactSheet) -> tuple[str, list[_Part]]:
    busy, loader = number(facts, "launch.gpu_busy_frac"), number(facts, "data.loader_wait_frac")
    if busy is not None:
        waits = min(loader or 0.0, 1.0 - busy)
        idle = max(0.0, 1.0 - busy - waits)
        ends: list[_Part] = [("waiting for data", waits, ":"), ("GPU idle", idle, ".")]
        return "one step", [*_computing(facts, busy), *ends]
    idle_profiled = number(facts, "launch.idle_profiled_frac")
    if idle_profiled is not None:
        busy = 1.0 - idle_profiled
        return "profiled step", [
            *_computing(facts, busy),
            ("GPU idle (less without the profiler)", idle_profiled, "."),
        ]
    optimizer = number(facts, "optimizer.step_frac")
    if loader is None or optimizer is None:
        return "", []
    rest = max(0.0, 1.0 - loader - optimizer)
    own = min(rest, number(facts, "stall.beside_frac") or 0.0)
    own = own if own >= _WORTH_A_PART else 0.0
    return "one step", [
        ("forward and backward", rest - own, "#"),
        ("optimizer", optimizer, "="),
        ("the loop's own code", own, "-"),
        ("waiting for data", loader, ":"),
    ]


def _computing(facts: FactSheet, busy: float) -> list[_Part]:
    """The busy part of a step by kind of work, where the kinds are known and add up."""
    exposed = min(number(facts, "comm.exposed_frac") or 0.0, busy)
    known = [
        ("matrix products", number(facts, "kernels.gemm_frac"), "#"),
        ("attention", number(facts, "attention.gpu_frac"), "@"),
        ("elementwise, norms", number(facts, "kernels.elementwise_frac"), "+"),
    ]
    shares: list[_Part] = [(label, share, mark) for label, share, mark in known if share is not None]
    total = sum(share for _, share, _ in shares) + (exposed / busy if busy else 0.0)
    if len(shares) < 2 or total > 1.001:
        shares, total = [("GPU computing", 1.0 - (exposed / busy if busy else 0.0), "#")], 1.0
    parts: list[_Part] = [(label, share * busy, mark) for label, share, mark in shares]
    parts.append(("other GPU work", max(0.0, 1.0 - total) * busy, "o"))
    parts.append(("exposed communication", exposed, "="))
    return parts


def _cells(parts: list[_Part]) -> list[int]:
    """Whole cells that add up to the bar; every shown part gets one at least (largest remainders)."""
    total = sum(part for _, part, _ in parts)
    exact = [_CELLS * part / total for _, part, _ in parts]
    cells = [max(1, int(value)) for value in exact]
    order = sorted(range(len(parts)), key=lambda i: exact[i] - int(exact[i]), reverse=True)
    for i in order:
        if sum(cells) < _CELLS:
            cells[i] += 1
    while sum(cells) > _CELLS:
        cells[cells.index(max(cells))] -= 1
    return cells
