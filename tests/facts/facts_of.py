"""Facts of a job whose ranks are given."""

from __future__ import annotations

from autotune.facts.everything import derive_facts
from autotune.records.observation import Observation, RankObservation


def facts_of(*ranks: RankObservation) -> dict[str, object]:
    """Name -> value of every fact that follows from these ranks."""
    whole = Observation(
        mode="profile",
        command=["python", "train.py"],
        cwd=".",
        exit_code=0,
        wall_s=5.0,
        ranks=list(ranks),
        expected_ranks=len(ranks),
    )
    return {name: fact.value for name, fact in derive_facts(whole, None).facts.items()}
