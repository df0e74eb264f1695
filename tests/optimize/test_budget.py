"""What a loop tells when its minutes do not suffice. The reasons are those of a run on two busy cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from autotune.analyze.diagnose import RuleSources
from autotune.apply.plan import Choice
from autotune.cli.common import options_again
from autotune.observe.spec import LaunchSpec
from autotune.optimize import budget
from autotune.optimize.loop import OptimizeLoop
from autotune.optimize.options import LoopOptions
from autotune.optimize.state import LoopState
from autotune.records.findings import Diagnosis
from autotune.records.ladder import Dropped, Ladder, Rung
from autotune.records.observation import EnvironmentRecord, Observation, RankObservation, StepRecord
from autotune.records.plan import PatchedJob, Plan, PlanGroup
from autotune.records.verdict import ParityResult, Settings, Verdict
from autotune.report.ladder import render_ladder
from autotune.verify.arm import VerifyOptions
from autotune.verify.trial import run_comparison

SET_ASIDE = "block 1 set aside: other programs used 1.3 of 2 cores while batching/padding-waste ran"
STOPPED = "stopped after 3 blocks: another takes about 1.0 minutes and 0.5 of 4 are left"
EAGER, PADDING = "attention/eager", "batching/padding-waste"


def group(rule: str, bound: float) -> PlanGroup:
    return PlanGroup(id=rule, rules=[rule], members=[], admissible=True, parity="numeric", ratio_upper=bound)


GROUPS = [group(EAGER, 2.62), group(PADDING, 3.66)]


def verdict(outcome: str = "undecided", notes: list[str] | None = None, **more: Any) -> Verdict:
    settings = Settings(
        tier="numeric", min_pairs=2, max_pairs=5, steps=8, warmup_steps=1, parity_steps=8, seed=0,
        max_minutes=4.0,
    )  # fmt: skip
    parity = ParityResult(tier="numeric", used="numeric", outcome="equal", sentence="equal")
    fields = {"outcome": outcome, "sentence": "speed undecided: one pair of launches only (3.39x)"}
    return Verdict.model_validate(
        {
            **fields,
            "parity": parity,
            "arms": [],
            "trials": [],
            "settings": settings,
            "notes": notes or [],
            **more,
        }
    )


def loop(tmp_path: Path, said: list[str], **limits: Any) -> tuple[OptimizeLoop, LoopState]:
    options = LoopOptions(
        rules=RuleSources(), choice=Choice(), verify=VerifyOptions(seed=0, min_pairs=2, max_pairs=5), **limits
    )
    return OptimizeLoop(tmp_path, options, say=said.append, status=lambda text: None), state()


def patched(label: str) -> PatchedJob:
    return PatchedJob(
        label=label, groups=[], rules=[], command=["python", f"{label}.py"], cwd="/", original_command=[],
        original_cwd="/", tree="/",
    )  # fmt: skip


def state() -> LoopState:
    """A job of 20 s a start."""
    steps = [StepRecord(index=i + 1, end_s=i, duration_ms=100.0) for i in range(24)]
    rank = RankObservation(
        rank=0, world_size=1, environment=EnvironmentRecord(python="3.12", torch="2.8"), status="stopped",
        steps=steps,
    )  # fmt: skip
    watched = Observation(
        mode="profile", command=[], cwd="/", exit_code=0, wall_s=20.0, ranks=[rank], expected_ranks=1
    )
    job = patched("as-it-is")
    found = Diagnosis.model_construct(run="r", verdict="", findings=[], facts={}, undecided=[], passed=[])
    return LoopState(
        baseline=job, current=job, observation=watched, diagnosis=found, rungs=[Rung(name="as it was")]
    )


@pytest.fixture
def climbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The rounds of a loop whose plan and trials are given; their arms do not matter here."""

    def climb(answers: list[Verdict], **limits: Any) -> tuple[list[list[str]], list[str], Ladder]:
        said: list[str] = []
        made, now = loop(tmp_path, said, **limits)
        tried: list[list[str]] = []

        def compare(_: LoopState, jobs: list[tuple[PlanGroup, PatchedJob]], tier: str) -> Verdict:
            tried.append([g.id for g, _ in jobs])
            answer = answers.pop(0)
            budget.note_time(now, made._options, answer, len(jobs))
            return answer

        monkeypatch.setattr(made, "_plan", lambda _: Plan.model_construct(groups=GROUPS))
        monkeypatch.setattr(made, "_patched", lambda *_: patched("changed"))
        monkeypatch.setattr(made, "_compare", compare)
        monkeypatch.setattr(made, "_at_roof", lambda _: False)
        reason, finished = made._climb(now)
        return tried, said, made._write(now, "finished" if finished else "budget", reason)

    return climb


def minutes(changes: int) -> tuple[float, float]:
    options = VerifyOptions(seed=0, min_pairs=2, max_pairs=5)
    from autotune.verify.estimate import estimate_minutes

    plan = estimate_minutes(state().observation, options, arms=changes + 1, ratio=budget.expected(GROUPS))
    assert plan is not None
    return plan.minutes_least, plan.minutes_most


def test_what_does_not_fit_together_is_tried_alone(climbed: Callable[..., Any]) -> None:
    limit = (minutes(1)[0] + minutes(2)[0]) / 2
    slower = verdict("slower")
    tried, said, _ = climbed([slower, slower], max_minutes=limit)
    assert tried == [[PADDING], [EAGER]] and any("alone fits" in line for line in said)


class Killed(Exception):
    pass


def test_what_an_interrupted_loop_finished_of_a_trial_takes_no_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, now = loop(tmp_path, [], max_minutes=minutes(1)[0] / 2)
    job = patched("changed")
    monkeypatch.setattr(made, "_patched", lambda *_: job)
    assert made._fit(now, GROUPS[:1]).over
    finished: list[Path] = []

    def start(spec: LaunchSpec) -> Observation:
        if len(finished) == 5:  # both whose training is compared, three that were timed
            raise Killed
        finished.append(spec.folder)
        spec.folder.mkdir(parents=True)
        return now.observation.model_copy(update={"mode": spec.mode})

    options, arms = made._verify_options("numeric"), made._arms(now, [(GROUPS[0], job)])
    with pytest.raises(Killed):
        run_comparison(
            arms,
            folder=made._trial_folder(1),
            options=options,
            launch=start,
            reference=made._reference(now),
        )
    fit = made._fit(now, GROUPS[:1])
    assert not fit.over and "1 or more starts" in fit.text  # of six
    # Other options make other launches: nothing of those helps.
    made._options = replace(made._options, verify=replace(made._options.verify, steps=11, parity_steps=11))
    assert made._fit(now, GROUPS[:1]).over


def test_what_does_not_fit_at_all_names_the_command_that_goes_on(climbed: Callable[..., Any]) -> None:
    tried, _, ladder = climbed(
        [], max_minutes=minutes(1)[0] / 2, resume_command="autotune optimize --resume r"
    )
    assert not tried and ladder.outcome == "undecided"
    text = " ".join(render_ladder(ladder).split())
    enough = int(ladder.go_on.rpartition(" ")[2])
    assert f"to go on: autotune optimize --resume r --max-minutes {enough}" in text
    assert minutes(2)[1] <= enough < minutes(2)[1] + 1
    assert f"not tried: {EAGER}: a trial of its own takes" in text and "not kept" not in text


def test_a_set_without_a_decision_stands_in_the_table(climbed: Callable[..., Any]) -> None:
    cut = verdict(notes=[SET_ASIDE, STOPPED], ratio=3.39)
    tried, said, ladder = climbed([cut], max_trials=1)
    assert tried == [[PADDING, EAGER]] and not any("one by one" in line for line in said)
    text = " ".join(render_ladder(ladder).split())
    assert f"not decided: {PADDING}, {EAGER}: 3.39x measured; together: speed undecided" in text
    assert ladder.outcome == "undecided" and "--max-trials 2" in ladder.go_on and "not tried" not in text


def test_a_trial_that_the_minutes_ended_is_no_natural_end(climbed: Callable[..., Any]) -> None:
    cut = verdict(notes=[STOPPED], ratio=3.39)
    _, _, ladder = climbed([cut, cut, cut], max_minutes=1000.0)
    assert ladder.state == "budget" and ladder.outcome == "undecided" and ladder.go_on
    assert {entry.how for entry in ladder.dropped} == {"not-decided"}
    _, _, decided = climbed([verdict(), verdict("slower"), verdict("slower")], max_minutes=1000.0)
    assert decided.state == "finished" and decided.outcome == "nothing-kept" and not decided.go_on


def test_notes_are_told_with_their_trial() -> None:
    ladder = Ladder(
        run="r", state="budget", rungs=[Rung(name="as it was")], outcome="undecided",
        notes=budget.notes_of(verdict(notes=[SET_ASIDE]), Path("trials/001")),
    )  # fmt: skip
    assert f"trial 1: {SET_ASIDE}" in " ".join(render_ladder(ladder).split())


def test_a_refused_change_is_told_once_and_not_as_tried() -> None:
    refused = Dropped(
        group="env/one-thread", rules=["env/one-thread"], reason="not selected", how="not-tried"
    )
    advice = "One thread: set it (env/one-thread; needs your review; --unsafe takes it)"
    ladder = Ladder(run="r", state="finished", rungs=[Rung(name="as it was")], dropped=[refused])
    alone = render_ladder(ladder)
    assert "not tried:\n  env/one-thread: not selected" in alone and "not kept" not in alone
    told = render_ladder(ladder.model_copy(update={"advice": [advice]}))
    assert told.count("env/one-thread") == 1 and "not tried, for you to decide:" in told


def test_the_command_that_goes_on_has_the_options_of_the_first() -> None:
    told: list[str] = []

    @click.command()
    @click.option("--max-minutes", type=float)
    @click.option("--min-gain", type=float, default=3.0)
    @click.option("--steps", type=int, default=12)
    @click.option("--select", multiple=True)
    @click.option("--unsafe", is_flag=True)
    def verb(**given: object) -> None:
        told.extend(options_again({"max_minutes"}))

    words = ["--select", "a/*", "--select", "b/c", "--unsafe", "--max-minutes", "4", "--min-gain", "2"]
    verb.main(words, standalone_mode=False)
    assert told == ["--min-gain", "2", "--select", "a/*", "--select", "b/c", "--unsafe"]
