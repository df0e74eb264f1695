"""Jobs of the bench one after the other, without waiting for what needs one core only.

A job needs the machine for itself from its first step to its last. Until then it loads libraries on one
core, and after it autotune reads what was seen, on one core too. So a job starts when the processes of the
one before are gone, while that is still being read; and two jobs start together: the second loads its
libraries beside the first, is stopped before either begins to train, and goes on when the first is gone.
It is stopped well before its first step, whose length is judged. A job of several processes is never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.faults.analyse import CUT_OFF, Analysis, Answer, Setting, installed
from bench.faults.cases import Case

_POLL_S = 0.05
_LEAST_S = 20.0  # before the end of a visit nothing starts
_BESIDE_S = 4.0  # how long the second one may load: less than torch and transformers take


def in_turn(cases: list[Case], work: Path, setting: Setting) -> Iterator[Answer]:
    """The answers in order; those of jobs that the end of the visit cut off are left out."""
    for said in _in_turn(cases, work, setting):
        if said.failure != CUT_OFF:
            yield said


def _in_turn(cases: list[Case], work: Path, setting: Setting) -> Iterator[Answer]:
    running: list[Analysis] = []
    try:
        for pair in pairs(cases):
            if setting.ends_at_s - time.monotonic() < _LEAST_S:
                break
            before = list(running)
            for case in pair:
                visible = installed(case.absent, setting.python)
                if not visible:
                    running.append(Analysis(case, work / case.id, setting))
                    continue
                while running:
                    yield running.pop(0).answer()
                yield Answer(case.id, 0.0, -1, failure=f"needs an environment without {', '.join(visible)}")
            for analysis in before:
                running.remove(analysis)
                yield analysis.answer()
            let_train(running)
        while running:
            yield running.pop(0).answer()
    finally:
        for analysis in running:
            analysis.give_up()


def pairs(cases: list[Case]) -> Iterator[list[Case]]:
    """The jobs in order, two neighbours together where not both go first and none fills the memory."""
    waiting: list[Case] = []
    for case in cases:
        if case.absent or case.sick == "memory":
            yield from [waiting] if waiting else []
            yield [case]
            waiting = []
        elif waiting and not (goes_first(waiting[0]) and goes_first(case)):
            yield sorted([*waiting, case], key=goes_first, reverse=True)
            waiting = []
        else:
            yield from [waiting] if waiting else []
            waiting = [case]
    if waiting:
        yield waiting


def goes_first(case: Case) -> bool:
    """Its processes wait for each other with time limits."""
    return case.processes > 1


def let_train(together: list[Analysis]) -> None:
    """Until the jobs are over: one trains at a time, in order; none of the others runs meanwhile."""
    for number, now in enumerate(together):
        later = together[number + 1 :]
        now.go_on()
        while not now.job_is_over():
            for earlier in together[:number]:
                earlier.is_over()
            for other in later:
                if now.steps_began() or other.ran_s() > _BESIDE_S:
                    other.hold()
            time.sleep(_POLL_S)
        now.end_if_late()
