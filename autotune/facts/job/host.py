"""Facts from looks at the training thread's stack and from the calls of the outermost model."""

from __future__ import annotations

from autotune.facts.sheet import SheetBuilder
from autotune.records.host import ForwardUses
from autotune.records.observation import Observation

_FEWEST_SAMPLES = 20


def host_facts(sheet: SheetBuilder, observation: Observation) -> None:
    """From the lead rank; absent where nothing looked or the looks were too few."""
    lead = observation.ranks[0]
    if lead.counters and lead.steps:
        starts = lead.counters.get("worker_starts", 0.0) / len(lead.steps)
        sheet.put("data.worker_starts_per_step", starts, "probe, DataLoader", f"rank {lead.rank}")
        for fact, counter in (
            ("optimizer.made_per_step", "optimizers_remade"),
            ("optimizer.graph_of_gradients_per_step", "backwards_with_graph"),
            ("optimizer.gradient_calls_per_step", "gradient_calls"),
        ):
            calls_made = lead.counters.get(counter, 0.0) / len(lead.steps)
            sheet.put(fact, calls_made, "probe, calls", f"{len(lead.steps)} steps, rank {lead.rank}")
    found = lead.host_samples
    if found is not None:
        source, basis = "probe, stack of the training thread", f"{found.samples} looks, rank {lead.rank}"
        sheet.put("host.samples", found.samples, source, basis)
        few = f"only {found.samples} looks" if found.samples < _FEWEST_SAMPLES else ""
        sheet.put("host.loop_frac", found.loop_frac, source, basis, why=few)
        sheet.put("host.call_frac", found.call_frac, source, basis, why=few)
        sheet.put("host.own_frac", found.own_frac, source, basis, why=few)
        sheet.put("host.beside_frac", found.beside_frac, source, basis, why=few)
        sheet.put("host.hooks_frac", found.hooks_frac, source, basis, why=few)
        sheet.put("host.hooked_modules", found.hooked_modules, source, basis, why=few)
        for name, value in (
            ("host.loop_function", found.loop_function),
            ("host.call_name", found.call_name),
            ("host.own_function", found.own_function),
            ("host.beside_function", found.beside_function),
            ("host.beside_in_hook", found.beside_in_hook),
            ("host.loading_function", found.loading_function),
        ):
            if value is not None:
                sheet.put(name, value, source, basis)
            elif not few:
                sheet.not_applicable(name, "no look found one")
    calls = lead.repeated_calls
    if calls is not None:
        source, basis = "probe, calls of all modules", f"one step, rank {lead.rank}"
        sheet.put("host.repeated_calls", calls.calls_per_backward, source, basis)
        sheet.put("host.repeated_frac", calls.frac, source, basis)
        sheet.put("host.repeated_cell", calls.cell, source, basis)
        repeated: tuple[tuple[str, str | float | None], ...] = (
            ("host.repeated_module", calls.module),
            ("host.repeated_call_us", calls.call_us),
        )
        for name, found_value in repeated:
            if found_value is not None:
                sheet.put(name, found_value, source, basis)
            else:
                sheet.not_applicable(name, "no module is called so often")
    uses = lead.forward_uses
    if uses is None:
        return
    source, basis = "probe, calls of the model", f"{uses.steps} steps, rank {lead.rank}"
    # of the steps looked at: they may be longer than the timed ones, and hold most of the probe's own work
    looked = [max(0.0, step.duration_ms - (step.hook_ms or 0.0)) for step in lead.steps[1 : 1 + uses.steps]]
    step_ms = max(sum(looked) / len(looked) if looked else 0.0, sheet.number("run.step_ms") or 0.0)
    sheet.put("host.uncached_in_generate", uses.uncached_in_generate, source, basis)
    sheet.put("host.cached_forwards_per_step", uses.cached_calls_per_step, source, basis)
    sheet.put("host.uncached_forwards_per_step", uses.uncached_calls_per_step, source, basis)
    why = "no forward with gradients was seen in these steps"
    for name, spent_ms in (
        ("host.uncached_frac", uses.uncached_ms_per_step),
        ("host.unused_forward_frac", uses.unused_ms_per_step),
    ):
        known = spent_ms is not None and step_ms
        share = min(1.0, (spent_ms or 0.0) / (step_ms or 1.0)) if known else None
        sheet.put(name, share, source, basis, why=why)
    sheet.put("host.unused_forwards_per_step", uses.unused_calls_per_step, source, basis, why=why)
    sheet.put("host.unused_forward_repeats", uses.repeated, source, basis, why=why)
    _idle_rows(sheet, observation, uses, source)


def _idle_rows(sheet: SheetBuilder, observation: Observation, uses: ForwardUses, source: str) -> None:
    if uses.idle_rows_frac is None:
        return
    basis = f"rows of {uses.idle_rows_classes} values"
    sheet.put("loss.idle_rows_frac", uses.idle_rows_frac, source, basis)
    model = observation.ranks[0].model
    if model is None or not model.hidden_size or model.embedding_parameters is None or not model.vocab_size:
        return
    if (uses.idle_rows_classes or 0) < 0.9 * model.vocab_size:
        return  # hidden states, no logits
    lookup = 0 if model.embedding_tied else model.embedding_parameters
    products = model.parameters - lookup
    head = uses.idle_rows_classes * model.hidden_size if uses.idle_rows_classes else 0
    if 0 < head <= products:
        sheet.put("loss.head_work_frac", head / products, "derived", f"{head} of {products} parameters")
