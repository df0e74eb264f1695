"""From a memory plan to a plan group: the rules of the memory plan, on the facts the plan makes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.records.plan import PlanGroup

if TYPE_CHECKING:
    from autotune.optimize.memory_measure import Limit, Peaks
    from autotune.optimize.memory_plan import Candidate
    from autotune.optimize.options import LoopOptions
    from autotune.optimize.state import LoopState
    from autotune.records.findings import Finding
    from autotune.records.observation import Observation
    from autotune.rules.compile import LoadedRule

CHECKPOINTING, MICRO_BATCH = "memory/joint-checkpointing", "memory/joint-micro-batch"
SWITCH_ON = "memory/joint-checkpointing-on"
GATHERED, OFFLOAD = "comm/reshard-after-forward", "memory/offload-unneeded"


class PlanRefusedError(Exception):
    """This job offers no edit for the plan; `rule` is the one that has none."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def group_of(
    state: LoopState, options: LoopOptions, peaks: Peaks, limit: Limit, candidate: Candidate
) -> PlanGroup:
    """The edits of a plan as one group. Raises PlanRefusedError."""
    from autotune.apply.plan import build_plan, widest
    from autotune.facts.catalogue import catalogue
    from autotune.facts.memory_plan import planned
    from autotune.rules.match import match

    wanted = _rules_of(candidate, peaks)
    sheet = planned(
        state.diagnosis.facts,
        layers=peaks.blocks,
        checkpointed=candidate.checkpointed if peaks.blocks or candidate.switch_on else None,
        micro_batch=asked_micro_batch(state.observation),
        times=candidate.times,
        accumulation=peaks.micro_batches,
        peak_frac=candidate.peak_bytes / limit.bytes,
        block_bytes=peaks.layer_bytes if candidate.switch_on else peaks.block_bytes,
    )
    own = [rule for rule in wanted if rule in (CHECKPOINTING, MICRO_BATCH, SWITCH_ON)]
    matched = match(
        [loaded for loaded in _loaded(options) if loaded.id in own],
        sheet,
        catalogue=catalogue(),
        sites=state.observation.sites,
    )
    findings: list[Finding] = [finding.model_copy(update={"excludes": []}) for finding in matched.findings]
    findings += [f for f in state.diagnosis.findings if f.rule in wanted and f.rule not in own]
    for rule in wanted:
        if all(finding.rule != rule for finding in findings):
            raise PlanRefusedError(rule, "the rule does not apply to this job or is switched off")
    plan = build_plan(
        state.diagnosis.model_copy(update={"facts": sheet.facts, "findings": findings}),
        state.observation,
        templates_dir=options.templates_dir,
        choice=replace(options.choice, wheels=options.wheelhouse is not None),
        base=state.current if state.kept else None,
    )
    members = [member for group in plan.groups if group.admissible for member in group.members]
    for rule in wanted:
        if all(member.rule != rule for member in members):
            reasons = [reason for advice in plan.advice if advice.rule == rule for reason in advice.reasons]
            reasons += [group.reason for group in plan.groups if rule in group.rules and group.reason]
            raise PlanRefusedError(rule, "; ".join(reasons) or "the rule offers no change for this job")
    return PlanGroup(
        id=f"{'+'.join(wanted)}@{candidate.checkpointed}x{candidate.times}",
        rules=wanted,
        members=sorted(members, key=lambda member: wanted.index(member.rule)),
        ratio_upper=candidate.ratio_upper,
        admissible=True,
        parity=widest(member.parity for member in members),
    )


def _rules_of(candidate: Candidate, peaks: Peaks) -> list[str]:
    wanted = [CHECKPOINTING] if candidate.checkpointed < peaks.blocks else []
    wanted += [SWITCH_ON] if candidate.switch_on else []
    wanted += [MICRO_BATCH] if candidate.times > 1 else []
    wanted += [GATHERED] if candidate.keep_gathered else []
    return wanted + ([OFFLOAD] if candidate.onload else [])


def _loaded(options: LoopOptions) -> list[LoadedRule]:
    from autotune.data import data_dir
    from autotune.facts.catalogue import catalogue
    from autotune.rules.load import load_rules

    rules = options.rules
    dirs = [data_dir("rules"), *rules.user_dirs]
    return load_rules(dirs, rules.disabled, catalogue=catalogue()).rules


def asked_micro_batch(observation: Observation) -> int | None:
    """Examples of a micro-batch as the job asks for them; None where no one number says it."""
    asked = [
        value
        for site in observation.sites
        if site.kind == "carrier"
        and type(value := site.detail.get("field.per_device_train_batch_size")) is int
    ]
    if observation.trainer_kind in ("transformers", "trl"):
        return int(asked[-1]) if asked else None
    sizes = {loader.batch_size for rank in observation.ranks for loader in rank.loaders if loader.batch_size}
    return sizes.pop() if len(sizes) == 1 else None
