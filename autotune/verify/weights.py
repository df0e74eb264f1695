"""What became of the weights: they move as before, and replicas stay replicas."""

from __future__ import annotations

from autotune.records.verdict import ParityCheck, ParityEvidence


def check_learning(baseline: ParityEvidence, candidate: ParityEvidence) -> ParityCheck:
    """Weights that moved in the baseline move in the candidate."""
    name = "learning"
    pairs = [
        [(rank.initial_weights_digest, rank.final_weights_digest) for rank in arm.ranks]
        for arm in (baseline, candidate)
    ]
    if any(digest is None for arm in pairs for pair in arm for digest in pair):
        return ParityCheck(name=name, outcome="not-applicable", detail="weights were not read twice")
    moved = [[first != last for first, last in arm] for arm in pairs]
    if any(before and not after for before, after in zip(*moved, strict=False)):
        return ParityCheck(name=name, outcome="fail", detail="the weights no longer change")
    return ParityCheck(name=name, outcome="pass", detail="the weights change as before")


def check_replicas(baseline: ParityEvidence, candidate: ParityEvidence) -> ParityCheck:
    """Ranks whose weights were equal after the last step stay equal."""
    name = "replicas"
    finals = [[rank.final_weights_digest for rank in arm.ranks] for arm in (baseline, candidate)]
    if len(baseline.ranks) < 2:
        return ParityCheck(name=name, outcome="not-applicable", detail="one rank")
    if any(digest is None for arm in finals for digest in arm):
        return ParityCheck(name=name, outcome="not-applicable", detail="final weights were not read")
    groups = [[digests.index(digest) for digest in digests] for digests in finals]
    if len(set(finals[0])) == len(finals[0]):
        return ParityCheck(name=name, outcome="not-applicable", detail="every rank holds its own shard")
    if groups[0] != groups[1]:
        return ParityCheck(
            name=name, outcome="fail", detail="ranks that held the same weights have drifted apart"
        )
    return ParityCheck(name=name, outcome="pass", detail="equal on every rank that held the same weights")


def drifted(arm: ParityEvidence) -> bool:
    """Ranks that began with equal weights ended with others: their gradients are not reduced."""
    known = [
        (rank.initial_weights_digest, rank.final_weights_digest)
        for rank in arm.ranks
        if rank.initial_weights_digest is not None and rank.final_weights_digest is not None
    ]
    return len({first for first, _ in known}) < len(set(known))
