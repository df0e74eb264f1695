"""Facts about batches and the loader."""

from __future__ import annotations

from collections import Counter
from statistics import median

from autotune.facts.job.token_budget import budget_facts
from autotune.facts.sheet import SheetBuilder
from autotune.facts.steady import step_times, steps_by_index
from autotune.records.observation import Observation


def data_facts(sheet: SheetBuilder, observation: Observation, basis: str) -> None:
    steps = [step for rank in observation.ranks for step in rank.steps]
    source = "probe, batches on the CPU side of the loader"
    sized = [s for s in steps if s.tokens]
    if sized:  # the shape alone tells these, also where padding cannot be told from text
        sheet.put("data.is_text_batch", True, source, f"{len(sized)} steps, {basis}")
        rows = [row for row in steps_by_index(observation).values() if all(s.tokens for _, s in row)]
        sums = [sum(s.tokens or 0 for _, s in row) for row in rows]
        what = f"{len(rows)} steps, {basis}"
        sheet.put("data.tokens_per_step", float(median(sums)) if sums else None, source, what)
    counted = [s for s in steps if s.tokens and s.real_tokens is not None]
    over = f"{len(counted)} steps, {basis}"
    if counted:
        tokens = sum(s.tokens or 0 for s in counted)
        real = sum(s.real_tokens or 0 for s in counted)
        sheet.put("data.padding_frac", 1.0 - real / tokens, source, over)
        supervised = [s for s in counted if s.supervised_tokens is not None]
        if supervised and real:
            total = sum(s.supervised_tokens or 0 for s in supervised)
            base = sum(s.real_tokens or 0 for s in supervised)
            sheet.put("data.supervised_frac", min(1.0, total / base) if base else None, source, over)
        by_index = list(steps_by_index(observation).values())
        useful = [sum(s.real_tokens or 0 for _, s in row) for row in by_index]
        sheet.put("data.useful_tokens_per_step", float(median(useful)) if useful else None, source, over)
    shapes = [shape for s in steps for shape in s.shapes]
    if shapes:
        row_counts = [shape[0] for shape in shapes]
        sheet.put("data.batch_size", float(median(row_counts)), source, f"{len(shapes)} micro-batches")
        lengths = [shape[1] for shape in shapes if len(shape) > 1]
        sheet.put("data.max_length_seen", max(lengths, default=None), source, f"{len(shapes)} micro-batches")
        lead_steps = [s for s in observation.ranks[0].steps if s.shapes]
        distinct = len({shape for s in lead_steps for shape in s.shapes})
        if len(lead_steps) >= 5:
            rate = 100.0 * distinct / len(lead_steps)
            sheet.put("data.distinct_shapes_per_100_steps", rate, source, f"{len(lead_steps)} steps, rank 0")
        if len(lengths) >= 5:
            padding = sheet.number("data.padding_frac")
            fixed = len(set(lengths)) == 1 and bool(padding and padding > 0.02)
            sheet.put("data.padded_to_fixed_length", fixed, source, f"{len(shapes)} micro-batches")
    if steps:
        backwards = float(median(s.micro_batches for s in steps)) / _backwards_per_graph(observation)
        fetched = _batches_per_step(observation)
        if fetched is not None and len(observation.ranks[0].optimizers) > 1:
            # Two networks that train each other: a backward for each of them, through the same batch.
            backwards = max(1.0, min(backwards, fetched))
        sheet.put("data.accumulation_steps", backwards, "probe, backward calls", over)
    budget_facts(sheet, observation, basis)
    _loader_facts(sheet, observation, basis)


def _backwards_per_graph(observation: Observation) -> float:
    """Backwards of several losses through one forward are one micro-batch."""
    model = observation.ranks[0].model
    return (model and model.backwards_per_graph) or 1.0


def _batches_per_step(observation: Observation) -> float | None:
    """Batches of the loader that a step takes; None where their number of examples is not known."""
    loaders = observation.ranks[0].loaders
    sizes = [s.examples for s in observation.ranks[0].steps if s.examples]
    if not loaders or not loaders[0].batch_size or not sizes:
        return None
    return float(max(1, round(median(sizes) / loaders[0].batch_size)))


_LATE_FRAC = 0.05  # of a step; below it the trace tells better who is late


def _late_rank(sheet: SheetBuilder, observation: Observation, timed: set[int]) -> None:
    """A rank that waits for its data longer than the usual rank: all others wait for it in every step."""
    if len(observation.ranks) < 2:
        return
    skews, last = [], Counter[int]()
    for index, entries in steps_by_index(observation).items():
        waits = sorted((s.loader_wait_ms or 0.0, rank.rank) for rank, s in entries)
        late_ms = waits[-1][0] - waits[(len(waits) - 1) // 2][0]
        rest_ms = max(s.duration_ms for _, s in entries) - late_ms
        if index in timed and rest_ms > 0:
            skews.append(late_ms / rest_ms)
            last[waits[-1][1]] += 1
    if skews and median(skews) >= _LATE_FRAC:
        how = f"{len(skews)} steps of {len(observation.ranks)} ranks"
        sheet.put("comm.rank_skew_frac", median(skews), "probe, waits for batches on each rank", how)
        sheet.put("comm.slowest_rank", last.most_common(1)[0][0], "probe, waits for batches", how)


def _loader_facts(sheet: SheetBuilder, observation: Observation, basis: str) -> None:
    times = step_times(observation)
    waits, shares = [], []
    for index, entries in steps_by_index(observation).items():
        if index not in times.indices:
            continue
        known = [step for _, step in entries if step.loader_wait_ms is not None]
        if known:
            waits.append(max(step.loader_wait_ms or 0.0 for step in known))
            shares.append(max((step.loader_wait_ms or 0.0) / step.duration_ms for step in known))
    _late_rank(sheet, observation, set(times.indices))
    over = f"{len(waits)} steps, slowest of {basis}"
    sheet.put("data.loader_wait_ms", median(waits) if waits else None, "probe, DataLoader", over)
    sheet.put(
        "data.loader_wait_frac", min(1.0, median(shares)) if shares else None, "probe, DataLoader", over
    )
    loaders = observation.ranks[0].loaders
    sheet.put("data.loader_is_dataloader", bool(loaders), "probe, DataLoader")
    if not loaders:
        return
    loader = loaders[0]
    source = "probe, DataLoader arguments"
    sheet.put("data.loader_workers", loader.num_workers, source)
    sheet.put("data.pin_memory", loader.pin_memory, source)
    sheet.put("data.dataset_iterable", loader.iterable, source)
    sheet.put("data.own_batch_sampler", loader.own_batch_sampler, source)
    sheet.put("data.dataset_picklable", loader.picklable, source)
    sheet.put("data.examples_in_dataset", loader.examples, source)
    sheet.put("data.padding_side", loader.padding_side, "probe, batches")
    sheet.put("run.batches_per_epoch", loader.batches, source)
    accumulation = sheet.number("data.accumulation_steps")
    if loader.batches and accumulation:
        sheet.put("run.optimizer_steps_per_epoch", loader.batches / accumulation, source)
