"""Facts a watched job brings by itself: what the probe reported, without the trace."""

from __future__ import annotations

from autotune.facts.job.calls import call_facts
from autotune.facts.job.causes import cause_facts
from autotune.facts.job.data import data_facts
from autotune.facts.job.host import host_facts
from autotune.facts.job.machine import debug_facts, device_facts, environment_facts, memory_facts
from autotune.facts.job.model import (
    attention_facts,
    kernel_facts,
    model_facts,
    packing_facts,
    precision_facts,
)
from autotune.facts.job.repeated import repeated_facts
from autotune.facts.job.run import optimizer_facts, run_facts, sharding_facts, stall_facts, sync_facts
from autotune.facts.job.settings import (
    batch_detail_facts,
    model_detail_facts,
    package_facts,
    pause_facts,
    settled_facts,
    switch_facts,
)
from autotune.facts.sheet import SheetBuilder
from autotune.records.observation import Observation


def job_facts(sheet: SheetBuilder, observation: Observation) -> None:
    """Fill the sheet from one observation; nothing is put when no rank reported."""
    ranks = observation.ranks
    if not ranks:
        return
    basis = f"ranks {ranks[0].rank}-{ranks[-1].rank}" if len(ranks) > 1 else "rank 0"
    lead = ranks[0]
    run_facts(sheet, observation, basis)
    device_facts(sheet, observation, lead)
    environment_facts(sheet, lead, observation)
    model_facts(sheet, lead, basis)
    attention_facts(sheet, lead, observation)
    kernel_facts(sheet, lead)
    data_facts(sheet, observation, basis)
    packing_facts(sheet, lead)
    optimizer_facts(sheet, observation, basis)
    precision_facts(sheet, lead)
    debug_facts(sheet, lead)
    memory_facts(sheet, observation, basis)
    sharding_facts(sheet, observation)
    sync_facts(sheet, observation)
    pause_facts(sheet, observation)
    stall_facts(sheet, observation)
    cause_facts(sheet, observation)
    host_facts(sheet, observation)
    repeated_facts(sheet, observation)
    call_facts(sheet, observation)
    package_facts(sheet, lead.environment)
    switch_facts(sheet, lead)
    model_detail_facts(sheet, lead)
    batch_detail_facts(sheet, observation)
    settled_facts(sheet, lead)
