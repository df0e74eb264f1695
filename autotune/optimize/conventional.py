"""The usual optimisations: which the job had or has no use for, and what is gained beyond all of them.

Anybody who tunes a training job tries these first, so a speed-up is worth only what it brings beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.records.findings import Diagnosis
    from autotune.records.ladder import Conventional, Rung

# Rule -> what the job does when the rule has nothing to say, and the fact without which it means nothing.
_USUAL = {
    "attention/eager": ("fused attention", "attention.implementation"),
    "precision/fp32-compute": ("half precision", "run.has_gpu"),
    "precision/tf32-off": ("TF32 products", "run.has_gpu"),
    "optimizer/not-fused": ("a fused optimizer", "optimizer.implementation"),
    "kernels/cache-in-training": ("no cache in training", "model.is_transformers"),
    "data/loader-stall": ("a loader that keeps up", "data.loader_is_dataloader"),
    "data/pageable-copies": ("pinned batches", "run.has_gpu"),
    "comm/exchange-every-micro-batch": ("one gradient exchange a step", "run.world_size"),
    "debug/flags-left-on": ("no debug switches", "run.is_training"),
}
USUAL = {rule: words for rule, (words, _) in _USUAL.items()}


def _applies(rule: str, diagnosis: Diagnosis) -> bool:
    """Whether the job is of the kind the rule speaks of."""
    fact = diagnosis.facts.get(_USUAL[rule][1])
    value = fact.value if fact is not None else None
    return value > 1 if isinstance(value, int) and not isinstance(value, bool) else bool(value)


def usual_optimisations(diagnosis: Diagnosis, rungs: Sequence[Rung], tried: Collection[str]) -> Conventional:
    """What of the usual optimisations the unchanged job had, lacked, and got; the ratio is the gain beyond.

    The ratio is None where a rung mixes usual and unusual changes, or a usual one is missing and was not
    tried: then nobody knows how fast a conventionally tuned job would be. `tried`: rules whose change ran in
    a trial and was dropped; what brought nothing there makes no job faster.
    """
    from autotune.records.ladder import Conventional

    had = [USUAL[p.rule] for p in diagnosis.passed if p.rule in USUAL and _applies(p.rule, diagnosis)]
    unknown = [USUAL[u.rule] for u in diagnosis.undecided if u.rule in USUAL and _applies(u.rule, diagnosis)]
    lacking = [f.rule for f in diagnosis.findings if f.rule in USUAL]
    kept = [rung for rung in rungs[1:] if any(rule in USUAL for rule in rung.rules)]
    got = {rule for rung in kept for rule in rung.rules}
    mixed = [rung for rung in kept if not all(rule in USUAL for rule in rung.rules)]
    untried = [rule for rule in lacking if rule not in got and rule not in tried]
    whole = rungs[-1].ratio_to_first if len(rungs) > 1 else None
    ratio = None
    if whole and not mixed and not untried and all(rung.ratio_to_previous for rung in kept):
        ratio = whole / math.prod(rung.ratio_to_previous or 1.0 for rung in kept)
    return Conventional(
        had=had,
        given=[USUAL[rule] for rung in kept for rule in rung.rules if rule in USUAL],
        lacking=[USUAL[rule] for rule in untried],
        unknown=unknown,
        ratio=ratio,
    )
