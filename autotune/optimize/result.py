"""The result of a loop as a record: what was kept, what was not and why, and what goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.analyze.verdict import why_untimed
from autotune.optimize.budget import command_to_go_on
from autotune.optimize.conventional import usual_optimisations
from autotune.optimize.decisions import for_a_person
from autotune.records.facts import FactSheet
from autotune.records.ladder import Ladder

if TYPE_CHECKING:
    from autotune.optimize.options import LoopOptions
    from autotune.optimize.state import LoopState


def result_of(state: LoopState, options: LoopOptions, run: str, how: str, reason: str) -> Ladder:
    """`how`: finished, budget, interrupted or failed; `reason`: why it stopped."""
    kept = {rule for group in state.kept for rule in group.rules}
    proven = (entry for entry in state.dropped if entry.verdict and entry.how == "not-kept")
    tried = {rule for entry in proven for rule in entry.rules}
    done = how == "finished" and not state.kept
    untimed = why_untimed(FactSheet(facts=state.diagnosis.facts)) if done else ""
    return Ladder(
        run=run,
        state=how,  # type: ignore[arg-type]
        rungs=state.rungs,
        dropped=state.left_out(),
        stop_reason=untimed or reason,
        trials=state.trials,
        minutes=round(state.all_minutes(), 2),
        advice=for_a_person(state.diagnosis, kept, tried),
        conventional=usual_optimisations(state.original or state.diagnosis, state.rungs, tried),
        notes=state.notes,
        go_on=command_to_go_on(state, options, run) if how == "budget" else "",
        outcome=state.outcome(how == "budget" or bool(untimed)),
    )
