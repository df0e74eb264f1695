"""What a result tells beside its ratio: usual tuning, decisions, epochs, roofline, the order of trials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.data import data_dir
from autotune.optimize.conventional import usual_optimisations
from autotune.optimize.decisions import for_a_person
from autotune.optimize.journal import Journal
from autotune.optimize.ladder import counted_again, measured_as_a_whole, refutes
from autotune.optimize.order import by_gain_per_minute
from autotune.optimize.roofline import roof_share
from autotune.records.facts import FactValue
from autotune.records.findings import Diagnosis, Finding, Fix, FixStep, Gain, Passed, Undecided
from autotune.records.ladder import Conventional, Ladder, Rung
from autotune.records.observation import EnvironmentRecord, Observation, RankObservation, StepRecord
from autotune.records.plan import PlanGroup
from autotune.records.terms import Applicability, Tier
from autotune.records.verdict import ParityResult, Settings, Verdict
from autotune.report.ladder import render_ladder
from autotune.store import write_record
from autotune.trace.summary import summarize
from autotune.verify.arm import VerifyOptions

TRACE = Path(__file__).parents[1] / "traces" / "h200_qwen35_2b4_padded_fallback_1step.json.gz"


def finding(
    rule: str, applicability: Applicability = "safe", *, bound: float | None = 1.2, tier: Tier = "numeric"
) -> Finding:
    steps = [] if applicability == "advice" else [FixStep(action="set_env", arguments={})]
    way = Fix(surface="call-site", title=f"Mend {rule}", applicability=applicability, steps=steps)
    return Finding(
        rule=rule, title=f"{rule} is slow", severity="medium", confidence="high", message="", evidence=[],
        gain=Gain(ratio_upper=bound), fixes=[way], parity=tier,
    )  # fmt: skip


def diagnosis(
    *findings: Finding, facts: dict[str, float | str | bool] | None = None, **more: object
) -> Diagnosis:
    values = {
        name: FactValue(state="value", value=value, source="probe") for name, value in (facts or {}).items()
    }
    fields = {"run": "r", "verdict": "", "facts": values, "undecided": [], "passed": [], **more}
    return Diagnosis.model_validate({**fields, "findings": list(findings)})


def rung(
    name: str, *rules: str, step: float | None = None, whole: float | None = None, **more: object
) -> Rung:
    fields = {"ratio_to_previous": step, "ratio_to_first": whole, **more}
    return Rung.model_validate({"name": name, "rules": list(rules), **fields})


def test_only_what_asks_for_a_person_is_left_to_one() -> None:
    found = diagnosis(
        finding("precision/float8-possible", "advice", bound=1.5),
        finding("batching/shape-churn", "review"),
        finding("optimizer/state-memory", tier="statistical", bound=None),
        finding("optimizer/not-fused"),
        finding("attention/eager", "advice"),
        finding("run/unsteady", "advice", bound=None),
    )
    lines = for_a_person(found, kept={"attention/eager"}, dropped=set())
    assert len(lines) == 3 and "at most 1.50x" in lines[0] and "by hand" in lines[0]
    assert "--unsafe" in lines[1] and "longer comparison" in lines[2]


def test_the_gain_beyond_usual_tuning() -> None:
    original = diagnosis(
        finding("attention/eager"),
        passed=[
            Passed(rule="optimizer/not-fused", title=""),
            Passed(rule="comm/exchange-every-micro-batch", title=""),  # one rank: says nothing
        ],
        facts={"optimizer.implementation": "fused", "run.has_gpu": True, "run.world_size": 1},
        undecided=[Undecided(rule="precision/tf32-off", title="", missing=[], decided_by=[])],
    )
    first = rung("as it was", whole=1.0)
    usual = rung("sdpa", "attention/eager", step=1.5, whole=1.5)
    more = rung("packing", "batching/padding-waste", step=2.0, whole=3.0)
    told = usual_optimisations(original, [first, usual, more], set())
    assert told.ratio == pytest.approx(2.0)
    assert (told.had, told.given) == (["a fused optimizer"], ["fused attention"])
    assert told.unknown == ["TF32 products"]
    # Lacking and never tried: nobody knows how fast the conventional job would be. Tried in vain: as it was.
    assert usual_optimisations(original, [first, more], set()).ratio is None
    assert usual_optimisations(original, [first, more], set()).lacking == ["fused attention"]
    assert usual_optimisations(original, [first, more], {"attention/eager"}).ratio == pytest.approx(3.0)
    mixed = rung("both", "attention/eager", "batching/padding-waste", step=3.0, whole=3.0)
    assert usual_optimisations(original, [first, mixed], set()).ratio is None


def test_batches_are_counted_again_and_unknown_is_said() -> None:
    first = rung("as it was", whole=1.0, batches_per_epoch=1022.0, optimizer_steps_per_epoch=511.0)
    packed = rung("packing", "batching/padding-waste", step=2.0, whole=2.0)
    looked = counted_again(packed, diagnosis(facts={"run.batches_per_epoch": 627.0}))
    assert looked.batches_per_epoch == 627.0 and looked.optimizer_steps_per_epoch is None
    ladder = Ladder(
        run="r", state="finished", rungs=[first, looked], outcome="faster", advice=["float8"],
        conventional=Conventional(had=["fused attention"], ratio=1.9),
    )  # fmt: skip
    text = " ".join(render_ladder(ladder).split())
    assert "1,022 batches and 511 optimizer steps before, 627 batches and unknown optimizer steps" in text
    assert "beside a conventionally tuned job: 1.90x" in text
    assert "nothing left to gain by: fused attention" in text and "for you to decide: float8" in text
    lacking = Conventional(had=[], lacking=["no cache in training"])
    text = " ".join(render_ladder(ladder.model_copy(update={"conventional": lacking})).split())
    assert "beside a conventionally tuned job: unknown (not tried: no cache in training)" in text


def job(seconds: float) -> Observation:
    steps = [StepRecord(index=i + 1, end_s=i, duration_ms=100.0) for i in range(10)]
    rank = RankObservation(
        rank=0, world_size=1, environment=EnvironmentRecord(python="3.12", torch="2.8"), status="stopped",
        steps=steps,
    )  # fmt: skip
    return Observation(
        mode="profile", command=[], cwd="/", exit_code=0, wall_s=seconds, ranks=[rank], expected_ranks=1
    )


def test_trials_are_ordered_by_gain_for_each_minute() -> None:
    def group(rule: str, bound: float, tier: Tier, **more: object) -> PlanGroup:
        fields = {"id": rule, "rules": [rule], "members": [], "admissible": True, "ratio_upper": bound}
        return PlanGroup.model_validate({**fields, "parity": tier, **more})

    slow = group("a/long", 1.25, "statistical")  # three seeds in both arms
    quick = group("b/short", 1.2, "bitwise")
    later = group("c/later", 3.0, "numeric", after=["b/short"])
    order = by_gain_per_minute([slow, quick, later], job(40.0), VerifyOptions(min_pairs=2))
    assert [g.id for g in order] == ["b/short", "c/later", "a/long"]


def test_starts_of_an_interrupted_loop_are_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path, lambda text: None)
    assert journal.seconds_of_starts() == 0.0
    journal.note("start", "parity", wall_s=12.5)
    journal.note("plan", "a plan", wall_s=99)
    journal.note("start", "used again", wall_s=0.0)
    with open(tmp_path / "journal.jsonl", "a") as out:
        out.write('{"event": "start", "wall_')  # killed while it wrote
    assert journal.seconds_of_starts() == 12.5
    resumed = Journal(tmp_path, lambda text: None)
    resumed.note("start", "timing", wall_s=2.0)
    assert resumed.seconds_of_starts() == 14.5
    # Edited by hand: what is no time of a start counts as none.
    with (tmp_path / "journal.jsonl").open("a") as file:
        for value in ('"9"', "NaN", "1e308", "-5", "true", "[1]"):
            file.write(f'{{"event": "start", "wall_s": {value}}}\n')
    assert resumed.seconds_of_starts() == 14.5


def test_the_roofline_of_a_recorded_step(tmp_path: Path) -> None:
    assert roof_share(tmp_path, 100.0) is None
    (tmp_path / "trace_summary.json").write_text(json.dumps({"schema_version": 99}))
    assert roof_share(tmp_path, 100.0) is None  # of another version: unknown
    summary = summarize([TRACE], tables_dir=data_dir("rules") / "_tables")
    write_record(tmp_path / "trace_summary.json", summary)
    share = roof_share(tmp_path, 700.0)
    assert share is not None and 0.05 < share < 0.9
    assert roof_share(tmp_path, 350.0) == pytest.approx(2 * share)
    assert roof_share(tmp_path, None) is None


def test_a_whole_without_an_answer_takes_no_proof_away() -> None:
    def verdict(outcome: str, **more: object) -> Verdict:
        parity = ParityResult(tier="numeric", used="numeric", outcome="equal", sentence="equal")
        settings = Settings(
            tier="numeric", min_pairs=2, max_pairs=2, steps=8, warmup_steps=1, parity_steps=8, seed=0
        )
        fields = {"outcome": outcome, "sentence": "", "parity": parity, "arms": [], "trials": []}
        return Verdict.model_validate({**fields, "settings": settings, **more})

    last = rung("b", "x/b", step=1.2, whole=1.8, parity="as proven")
    assert measured_as_a_whole(last, verdict("undecided")) == last
    told = measured_as_a_whole(last, verdict("undecided", ratio=1.6, interval=(0.9, 2.8)))
    assert (told.ratio_to_first, told.interval_to_first) == (1.6, (0.9, 2.8))
    assert not refutes(verdict("undecided")) and not refutes(verdict("not-finished"))
    assert all(refutes(verdict(word)) for word in ("slower", "no-measurable-change", "parity-broken"))


def test_an_epoch_that_stays_as_it_was_is_told_once() -> None:
    rung = Rung(name="as it was", batches_per_epoch=1000, optimizer_steps_per_epoch=500)
    rungs = [rung, rung.model_copy(update={"name": "faster", "ratio_to_first": 2.0})]
    text = render_ladder(Ladder(run="r", state="finished", rungs=rungs, outcome="faster"))
    assert "an epoch: 1,000 batches and 500 optimizer steps, before and after" in text
