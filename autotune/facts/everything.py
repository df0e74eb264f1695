"""From what was recorded to the fact sheet: the one entry of this floor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.facts.derived import derived_facts
from autotune.facts.job.everything import job_facts
from autotune.facts.job.settings import checkpoint_estimates
from autotune.facts.memory_plan import no_plan
from autotune.facts.sheet import SheetBuilder
from autotune.facts.trace.everything import trace_facts

if TYPE_CHECKING:
    from autotune.records.facts import FactSheet
    from autotune.records.observation import Observation
    from autotune.records.trace import TraceSummary


def derive_facts(observation: Observation | None, traces: TraceSummary | None) -> FactSheet:
    """Facts of a run. Either source may be missing; what it alone could tell is then absent."""
    sheet = SheetBuilder()
    if observation is not None:
        job_facts(sheet, observation)
    peak = trace_facts(sheet, traces, observation) if traces is not None else None
    derived_facts(sheet, observation, peak)
    checkpoint_estimates(sheet)
    no_plan(sheet)
    return sheet.sheet(watched=observation is not None)
