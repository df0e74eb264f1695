"""What the recorded calls and their arguments say: compile modes, wrappers, clipping, carriers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from autotune.facts.sheet import SheetBuilder
from autotune.records.observation import Observation
from autotune.records.sites import Site, SiteKind

# Options of launchers, and of DeepSpeed, that name a file of theirs.
_LAUNCHER_FILES = {"config_file", "config-file", "deepspeed", "deepspeed_config", "deepspeed-config"}

_AT_LIMIT = re.compile(r"function: '(?P<name>[^']+)' \((?P<file>.+):\d+\)")  # in torch's line on the limit


def call_facts(sheet: SheetBuilder, observation: Observation) -> None:
    """Facts from call sites; absent where the kind of call was not seen."""
    source = "probe, recorded calls"
    _compile(sheet, observation, source)
    _sharding(sheet, observation, source)
    clips = list(_of(observation, "clip_grad"))
    if clips:
        sheet.put("optimizer.clip_checks_finite", _any_true(clips, "error_if_nonfinite"), source)
        sheet.put("optimizer.clip_foreach", not _any_false(clips, "foreach"), source)
    calls = [site for site in _of(observation, "model_call") if site.arguments]
    if calls:
        whole = all(a.origin == "star-kwargs" for site in calls for a in site.arguments.values())
        sheet.put("data.batch_passed_whole", whole, source, f"{len(calls)} calls of the model")
    _checkpointing(sheet, observation, source)
    creates = [*_of(observation, "model_create"), *_of(observation, "config_create")]
    if creates:
        asked = _any_true(creates, "use_kernels")
        sheet.put("kernels.hub_kernels_asked", asked, source)
    carriers = list(_of(observation, "carrier"))
    if carriers:
        origin = settings_origin(carriers)
        if (
            origin == "call-site"
            and not any(site.editable for site in carriers)
            and _names_a_file(observation)
        ):
            origin = "config"  # a program of a library read the file its command names
        sheet.put("trainer.settings_origin", origin, source)
    _reference(sheet, carriers, source)


def _reference(sheet: SheetBuilder, carriers: list[Site], source: str) -> None:
    """Preference training with a fixed reference model whose results are not kept. Settings that plan a count
    of steps do not say how often they go over the data.
    """
    fields = [site.detail for site in carriers if "field.precompute_ref_log_probs" in site.detail]
    if not fields:
        sheet.not_applicable(
            "trainer.reference_recomputed", "no settings of a trainer with a reference model"
        )
        return
    last = fields[-1]
    again = last["field.precompute_ref_log_probs"] is False and last.get("field.sync_ref_model") is not True
    counted = last.get("field.max_steps")
    planned = isinstance(counted, int) and counted > 0
    sheet.put("trainer.reference_recomputed", again and not planned, source)


def _checkpointing(sheet: SheetBuilder, observation: Observation, source: str) -> None:
    """Whether somebody asked for checkpointing when the job was started."""
    lead = observation.ranks[0]
    if lead.checkpointing is None or not lead.checkpointing.enabled:
        return
    calls = [site.detail.get("asked_by") for site in _of(observation, "checkpoint_enable")]
    fields = [
        site
        for site in _of(observation, "carrier")
        if site.detail.get("origin.gradient_checkpointing") == "cli"
        or (
            "gradient_checkpointing" in site.arguments
            and site.arguments["gradient_checkpointing"].origin == "cli"
        )
    ]
    flags = [str(flag) for flag in calls if flag] + (["--gradient_checkpointing"] if fields else [])
    sheet.put("memory.checkpointing_asked", bool(flags), source, ", ".join(flags))


def _names_a_file(observation: Observation) -> bool:
    """Whether the command names a configuration file that is not its launcher's."""
    words = observation.command
    return any(
        word.endswith((".yaml", ".yml", ".json", ".toml")) and before.lstrip("-") not in _LAUNCHER_FILES
        for before, word in zip(["", *words], words, strict=False)
    )


def settings_origin(carriers: Iterable[Site]) -> str:
    """Where most of the carriers' fields come from: the call itself, the command line or a file."""
    origins: Counter[str] = Counter()
    for site in carriers:
        for name, value in site.detail.items():
            if name.startswith("origin."):
                origins["flag" if value == "cli" else str(value)] += 1
        # A call that hands on some options of the script's own parser takes other settings as arguments only.
        origins["config"] += sum(argument.origin == "config" for argument in site.arguments.values())
    named = [(count, name) for name, count in origins.items() if count and name in ("flag", "config")]
    return max(named)[1] if named else "call-site"


def _compile(sheet: SheetBuilder, observation: Observation, source: str) -> None:
    sites = list(_of(observation, "compile"))
    modes = {_text(site, "mode").strip("'\"") for site in sites} - {"", "None"}
    if modes:
        sheet.put("compile.mode", sorted(modes)[0], source)
    elif sites:
        sheet.put("compile.mode", "default", source)
    elif sheet.value("model.is_compiled") is False:
        sheet.not_applicable("compile.mode", "nothing is compiled")
    log = [line for line in observation.log_tail if "recompile_limit" in line or "cache_size_limit" in line]
    hit = any("hit" in line or "reached" in line or "exceeded" in line for line in log)
    if sites or log:
        sheet.put("compile.limit_hit", hit, "the job's own log")
    if hit:
        _pieces_at_the_limit(sheet, observation)


def _pieces_at_the_limit(sheet: SheetBuilder, observation: Observation) -> None:
    """Whether the log names the functions at the limit, and all of them are what graph breaks left over."""
    found = [match for line in observation.log_tail if (match := _AT_LIMIT.search(line))]
    pieces = {
        piece for rank in observation.ranks for reason in rank.compile_reasons for piece in reason.pieces
    }
    if found:
        left_over = all(
            match["name"].startswith("torch_dynamo_resume_in_")
            or f"{match['file']}:{match['name']}" in pieces
            for match in found
        )
        sheet.put("compile.limit_in_pieces", left_over, "the job's own log and torch.compile's records")


def _sharding(sheet: SheetBuilder, observation: Observation, source: str) -> None:
    sites = list(_of(observation, "shard"))
    ddp = [site for site in sites if site.callee.endswith("DistributedDataParallel")]
    fields = [site.detail.get("field.ddp_find_unused_parameters") for site in _of(observation, "carrier")]
    if ddp:
        sheet.put("comm.find_unused_parameters", _any_true(ddp, "find_unused_parameters"), source)
        sheet.put("comm.gradients_in_buckets", _any_true(ddp, "gradient_as_bucket_view"), source)
    elif any(value is True for value in fields):
        sheet.put("comm.find_unused_parameters", True, source)
    lead = observation.ranks[0]
    if lead.sharding is not None and lead.sharding.mesh:
        sheet.put("comm.replicated", len(lead.sharding.mesh) > 1, source, f"mesh {lead.sharding.mesh}")
    if sites:
        said = " ".join(a.text for site in sites for a in site.arguments.values()).lower()
        sheet.put("memory.parameters_offloaded", "cpuoffload" in said, source)


def _of(observation: Observation, kind: SiteKind) -> Iterable[Site]:
    return (site for site in observation.sites if site.kind == kind)


def _text(site: Site, name: str) -> str:
    return site.arguments[name].text if name in site.arguments else ""


def _any_true(sites: Iterable[Site], name: str) -> bool:
    return any(_text(site, name) == "True" for site in sites)


def _any_false(sites: Iterable[Site], name: str) -> bool:
    return any(_text(site, name) == "False" for site in sites)
