"""What a finished launch means to the user: usable steps, a failed job, or a job nobody could observe."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.errors import JobFailedError, NotObservedError

if TYPE_CHECKING:
    from autotune.records.observation import Observation


def job_failed(observation: Observation) -> bool:
    """The job ended by a fault of its own: an exception on a rank, or a launcher that reports failure.

    What a job does after all its ranks were asked to stop is no fault of its own: one that is stopped inside
    a profiler of its own, for instance, may die while the interpreter shuts down.
    """
    ranks = observation.ranks
    if (
        ranks
        and len(ranks) >= (observation.expected_ranks or 1)
        and all(r.status == "stopped" for r in ranks)
    ):
        return False
    if observation.exit_code not in (0, None):
        return True
    return any(rank.status == "exception" for rank in observation.ranks)


def failure_sentence(observation: Observation) -> str:
    """What ended a failed job, in one line."""
    for rank in observation.ranks:
        if rank.error:
            steps = len(rank.steps)
            return f"the job failed on rank {rank.rank} after {steps} steps: {rank.error}"
    code = observation.exit_code
    last = last_words(observation.log_tail)
    tail = f"; its last line: {last}" if last else ""
    if code is not None and code < 0:
        return f"the job was ended by {signal.Signals(-code).name}{tail}"
    return f"the job failed with exit code {code}{tail}"


def last_words(log: Sequence[str]) -> str:
    """The line of a log that says most about its end: the exception, else the last one that is not empty.

    Output and errors come through pipes of their own: what was printed before may stand behind a traceback.
    """
    told = [line.rstrip() for line in log if line.strip()]
    raised = [words for number in range(len(told)) if (words := _raised(told[number:]))]
    own = [words for words in raised if "ChildFailedError" not in words]  # torchrun's, about its ranks
    return ([*told, *raised, *own] or [""])[-1].strip()[:200]


def _raised(lines: Sequence[str]) -> str:
    """The exception of the traceback that begins here; empty where none does. Ranks may prefix lines."""
    prefix, begins, _ = lines[0].partition("Traceback (most recent call last)")
    if not begins:
        return ""
    own = (line[len(prefix) :] for line in lines[1:] if line.startswith(prefix))
    return next((line for line in own if line and not line[0].isspace()), "")


def failure_hint(observation: Observation) -> str:
    """What to do about a failed job."""
    said = [last_words(observation.log_tail), *(rank.error or "" for rank in observation.ranks)]
    if any(words.startswith("EOFError") for words in said):
        return "an observed job gets no input: answer what it asks with an option or a variable"
    return "its output is in train.log of the launch"


def require_steps(observation: Observation, minimum: int = 1, *, where: str | None = None) -> None:
    """Raise JobFailedError or NotObservedError unless some rank showed at least `minimum` steps."""
    seen = max((len(rank.steps) for rank in observation.ranks), default=0)
    if seen >= minimum:
        return
    if job_failed(observation):
        raise JobFailedError(failure_sentence(observation), where=where, hint=failure_hint(observation))
    if observation.stop_reason:
        raise NotObservedError(observation.stop_reason, where=where)
    if any(rank.counters.get("backwards_without_update", 0) > 1 for rank in observation.ranks):
        raise NotObservedError(
            "backward passes were seen, but no update of the parameters",
            where=where,
            hint="gradients were computed and not used: is this the command that trains?",
        )
    if not observation.ranks:
        raise NotObservedError(
            "the job ended without a training step (no optimizer step on any process)",
            where=where,
            hint="is this the command that trains?",
        )
    raise NotObservedError(
        f"the job ended after {seen} training steps; {minimum} are needed", where=where, code="too-few-steps"
    )
