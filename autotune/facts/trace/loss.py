"""The output layer and the loss: their share of the step, and how many of their positions have a label."""

from __future__ import annotations

from typing import Literal

from autotune.facts.sheet import SheetBuilder
from autotune.records.observation import Observation
from autotune.records.trace import RankTrace


def loss_facts(
    sheet: SheetBuilder, lead: RankTrace, steps: int, basis: str, observation: Observation | None
) -> None:
    """Only what the loss kernels' names tell where the loss is fused: then there is no softmax to see."""
    head = lead.loss_head
    if head is None or not head.rows:
        if lead.gpu is not None:
            named = sum(row.share_frac for row in lead.classes if row.name == "loss")
            sheet.put("loss.logits_frac", named, "trace, names of kernels", basis)
        return
    whole_ms = lead.gpu.busy_ms if lead.gpu is not None else lead.cpu.op_self_ms
    if whole_ms:
        logits_ms = head.loss_ms + head.passes_ms
        for name, part_ms in (
            ("loss.head_frac", head.product_ms + logits_ms),
            ("loss.logits_frac", logits_ms),
        ):
            sheet.put(name, min(1.0, part_ms / whole_ms), "trace", f"{head.classes} classes, {basis}")
    if _other_forwards(observation, lead):
        return
    labelled = _tokens(observation, lead, steps, "supervised_tokens")
    if labelled is None:
        return
    share = max(0.0, 1.0 - labelled / head.rows)
    what = f"{head.rows} positions in the softmax, {labelled:.0f} labels in these batches, {basis}"
    sheet.put("loss.unsupervised_frac", share, "trace and batches", what)
    real = _tokens(observation, lead, steps, "real_tokens")
    if real is not None:
        text = min(share, max(0.0, real - labelled) / head.rows)
        sheet.put("loss.unlabelled_text_frac", text, "trace and batches", what)


def _other_forwards(observation: Observation | None, lead: RankTrace) -> bool:
    """Whether forwards that are not trained on (a second one, generation) use the output layer, too."""
    ranks = [] if observation is None else observation.ranks
    uses = next((rank.forward_uses for rank in ranks if rank.rank == (lead.rank or 0)), None)
    if uses is None:
        return False
    return any(
        (number or 0.0) >= 0.5
        for number in (uses.unused_calls_per_step, uses.uncached_calls_per_step, uses.cached_calls_per_step)
    )


def _tokens(
    observation: Observation | None,
    lead: RankTrace,
    steps: int,
    name: Literal["supervised_tokens", "real_tokens"],
) -> float | None:
    """Tokens of one kind in the traced steps; None when the batches do not tell."""
    if observation is None or not observation.ranks:
        return None
    number = lead.rank if lead.rank is not None else observation.ranks[0].rank
    rank = next((r for r in observation.ranks if r.rank == number), observation.ranks[0])
    known = [step for step in rank.steps if getattr(step, name) is not None]
    # the profiler starts up in the first of the marked steps; the trace holds the last ones
    traced = [step for step in known if "profiled" in step.tags][-steps:]
    if not traced or len(traced) < steps:
        return None
    total = float(sum(getattr(step, name) for step in traced))
    batches = sum(step.micro_batches for step in traced)
    if rank.traced_micro_batches is not None and batches:  # the trace may hold only some of a long step
        return total / batches * rank.traced_micro_batches * steps
    return total
