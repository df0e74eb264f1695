"""What becomes of changes whose trial was not accepted: dropped, not decided, or tried otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.optimize import budget
from autotune.optimize.blame import to_blame
from autotune.optimize.gains import name_of, too_weak
from autotune.records.ladder import Dropped

if TYPE_CHECKING:
    from autotune.optimize.journal import Journal
    from autotune.optimize.options import LoopOptions
    from autotune.optimize.state import LoopState
    from autotune.records.plan import PlanGroup
    from autotune.records.verdict import Verdict


class Drops:
    """Writes down, in the state and the journal of one run, what is not kept and why."""

    def __init__(self, run: Path, options: LoopOptions, journal: Journal) -> None:
        self._run = run
        self._options = options
        self._journal = journal

    def after_failed(
        self, state: LoopState, groups: Sequence[PlanGroup], verdict: Verdict, path: Path
    ) -> None:
        """Without those the trial speaks against, else one by one, else not at all."""
        if blamed := to_blame(groups, verdict):
            self._leave_out(state, blamed, verdict, path)
        elif len(groups) > 1:
            self._split(state, groups, verdict, path)
        else:
            self.tried(state, groups[0], verdict.sentence, path, verdict)

    def drop(self, state: LoopState, group: PlanGroup, reason: str, path: Path | None = None) -> None:
        """The group is not kept."""
        relative = self._relative(path) if path is not None else None
        state.dropped.append(Dropped(group=group.id, rules=group.rules, reason=reason, verdict=relative))
        self._journal.decide("dropped", f"Dropped: {name_of(group)}: {reason}", group=group.id)

    def tried(self, state: LoopState, group: PlanGroup, reason: str, path: Path, verdict: Verdict) -> None:
        """A change whose own trial did not prove it: dropped, or left without a decision."""
        left = budget.left_after([group], verdict, reason, self._relative(path))
        state.dropped.append(left)
        word = "Not decided" if left.how == "not-decided" else "Dropped"
        self._journal.decide("dropped", f"{word}: {name_of(group)}: {reason}", group=group.id)

    def _leave_out(self, state: LoopState, rules: list[str], verdict: Verdict, path: Path) -> None:
        """The other changes of the trial have another one without these."""
        why = verdict.sentence
        state.without.update(dict.fromkeys(rules, why))
        left = Dropped(group="+".join(rules), rules=rules, reason=why, verdict=self._relative(path))
        state.dropped.append(left)
        text = f"Dropped: {', '.join(rules)}: {why.rstrip('.')}. Trying the others without."
        self._journal.decide("dropped", text, groups=rules)

    def _split(self, state: LoopState, groups: Sequence[PlanGroup], verdict: Verdict, path: Path) -> None:
        """Which of the groups failed together is not known: those that may be the cause go one by one."""
        apart = too_weak(verdict, groups, self._options.min_gain_ratio)
        state.solo.update(group.id for group in apart)
        outcome = budget.left_after(groups, verdict, f"together: {verdict.sentence}", self._relative(path))
        if outcome.how == "not-decided":
            state.undecided.append(outcome)
        then = budget.next_words(state, self._options, groups, apart)
        text = f"Together: {verdict.sentence.rstrip('.')}. {then}"
        self._journal.decide("split", text, groups=[group.id for group in apart])

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self._run))
