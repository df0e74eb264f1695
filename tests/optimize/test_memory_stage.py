"""The search of a memory plan: which plan is tried, what happens when it does not fit, when it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.analyze.diagnose import RuleSources, diagnose_launch
from autotune.analyze.watch import OBSERVE, JobStart, WatchOptions, watch
from autotune.apply.job import materialise
from autotune.apply.plan import Choice, build_plan
from autotune.optimize.budget import minutes_of_one
from autotune.optimize.journal import Journal
from autotune.optimize.memory_group import asked_micro_batch, group_of
from autotune.optimize.memory_measure import Limit, Measurement, Peaks
from autotune.optimize.memory_plan import Candidate
from autotune.optimize.memory_stage import MemoryStage, Tools
from autotune.optimize.options import LoopOptions
from autotune.optimize.state import LoopState
from autotune.records.ladder import Rung
from autotune.records.plan import PlanGroup
from autotune.records.verdict import ArmRecord, MemoryPeak, ParityResult, Settings, Verdict
from autotune.verify.arm import VerifyOptions

SCRIPT = Path(__file__).parent.parent / "scripts" / "checkpointed_loop.py"
WORDS = ("--accumulation", "2", "--batch-size", "8", "--pointwise", "10")
TRAINER = SCRIPT.with_name("checkpointed_trainer.py")
MIB = 2**20


class Bench:
    """A watched job with its state; its changes are really made, comparisons answer as they are told."""

    def __init__(self, run: Path, style: str) -> None:
        self.run = run
        words = (str(TRAINER),) if style == "trainer" else (str(SCRIPT), "--style", style, *WORDS)
        job = JobStart(command=(sys.executable, *words), cwd=SCRIPT.parent)
        options = WatchOptions(steps=5, warmup_steps=2, echo=False)
        self.observation = watch(job, run / "launches" / OBSERVE, options)
        self.diagnosis = diagnose_launch(run, OBSERVE, RuleSources()).diagnosis
        self.outcomes: list[str] = []
        self.compared: list[PlanGroup] = []
        self.dropped: list[str] = []
        self.jobs: list[Any] = []

    def stage(self, limit_gib: float | None, kind: type[MemoryStage] = MemoryStage) -> MemoryStage:
        self.options = LoopOptions(
            rules=RuleSources(), choice=Choice(), verify=VerifyOptions(seed=0), memory_limit_gib=limit_gib
        )
        self.said: list[str] = []
        tools = Tools(
            patch=self._patch,
            over_budget=lambda state, group: "",
            compare=self._compare,
            keep=lambda state, group, job, verdict: state.rungs.append(Rung(name=group.id)),
            drop=lambda state, group, reason, judged: self.dropped.append(f"{group.id}: {reason}"),
        )
        return kind(self.run, self.options, Journal(self.run, self.said.append), tools)

    def state(self) -> LoopState:
        baseline = materialise([], self.observation, run=self.run, label="baseline")
        return LoopState(
            baseline=baseline, current=baseline, observation=self.observation, diagnosis=self.diagnosis,
            rungs=[Rung(name="as it was")],
        )  # fmt: skip

    def plan(self) -> Any:
        return build_plan(self.diagnosis, self.observation)

    def _patch(self, state: LoopState, group: PlanGroup) -> Any:
        self.jobs.append(
            materialise([group], self.observation, run=self.run, label=f"trial-{state.trials:03d}")
        )
        return self.jobs[-1]

    def _compare(self, state: LoopState, group: PlanGroup, job: Any) -> Verdict:
        self.compared.append(group)
        outcome = self.outcomes.pop(0) if self.outcomes else "faster"
        settings = Settings(
            tier="numeric", min_pairs=2, max_pairs=2, steps=5, warmup_steps=1, parity_steps=5, seed=0
        )
        parity = ParityResult(tier="numeric", used="numeric", outcome="equal", sentence="")
        return Verdict.model_validate(
            {
                "outcome": outcome,
                "sentence": outcome,
                "parity": parity,
                "settings": settings,
                "arms": [],
                "trials": [],
            }
        )


class Prepared(MemoryStage):
    """Measurements in place of starts: by the name of what is started, in turn."""

    answers: dict[str, list[Measurement]]
    more_blocks = 0  # than the plan says

    def _start(
        self, state: LoopState, name: str, job: Any, blocks: bool, micro_batches: int = 0
    ) -> Measurement:
        found = self.answers["as it is" if name == "as it is" else "changed"]
        answer = found.pop(0) if len(found) > 1 else found[0]
        if answer.peaks is not None and name != "as it is":
            blocks = int(name.rpartition("@")[2].partition("x")[0]) + self.more_blocks
            return Measurement(replace(answer.peaks, micro_batches=micro_batches, blocks=blocks))
        return answer


def seen(peak: int, rest: int = 300, block: int | None = 10, blocks: int = 6) -> Measurement:
    kept = None if block is None else block * MIB
    return Measurement(Peaks(peak * MIB, rest * MIB, blocks, kept, 2, 56))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("run"), "function")


def searched(
    bench: Bench, limit_mib: float, answers: dict[str, list[Measurement]]
) -> tuple[MemoryStage, LoopState]:
    bench.compared, bench.dropped = [], []
    stage = bench.stage(limit_mib / 1024, Prepared)
    assert isinstance(stage, Prepared)
    stage.answers = answers
    state, plan = bench.state(), bench.plan()
    assert stage.is_due(state, plan)
    assert stage.go(state, plan) == ""
    return stage, state


@pytest.mark.job
def test_a_tight_limit_keeps_some_layers_checkpointed(bench: Bench) -> None:
    # 360 of 400 MiB may be used and 325 are: three blocks of 10 MiB fit
    stage, state = searched(bench, 400, {"as it is": [seen(325)], "changed": [seen(350)]})
    (group,) = bench.compared
    assert group.rules == ["memory/joint-checkpointing"] and group.id.endswith("@3x1")
    assert group.members[0].fix == "Call 6 layers, 3 of them through torch.utils.checkpoint"
    (shim,) = [file for file in bench.jobs[-1].files if file.kind == "shim"]
    text = Path(shim.shadow).read_text()
    assert "LAYERS = 6" in text and "CHECKPOINTED = 3" in text
    rung = state.rungs[-1]
    assert rung.predicted_peak_gib == pytest.approx(355 / 1024) and rung.longest_peak_gib == pytest.approx(
        350 / 1024
    )
    assert stage.is_due(state, bench.plan())  # a win of memory: searched again
    events = [json.loads(line) for line in (bench.run / "journal.jsonl").read_text().splitlines()]
    assert [e for e in events if e["event"] == "memory" and e.get("predicted_bytes") == 355 * MIB]


@pytest.mark.job
def test_room_for_all_switches_checkpointing_off(bench: Bench) -> None:
    searched(bench, 1000, {"as it is": [seen(325)], "changed": [seen(385)]})
    assert bench.compared[0].id.endswith("@0x1")


@pytest.mark.job
def test_a_plan_that_does_not_fit_makes_way_for_a_smaller_one(bench: Bench) -> None:
    answers = {"as it is": [seen(325)], "changed": [Measurement(None, True, "out of memory"), seen(340)]}
    searched(bench, 500, answers)  # all six are predicted to fit
    assert "@0x1: runs out of memory on the longest batch (predicted 0.38 GiB)" in bench.dropped[0]
    assert [group.id[-4:] for group in bench.compared] == ["@5x1"]
    # measured 20 % above the prediction: what is less than that below the limit is passed over
    searched(bench, 450, {"as it is": [seen(325)], "changed": [seen(462), seen(346)]})
    assert "@0x1: the longest batch takes 0.45 GiB" in bench.dropped[0]
    assert bench.compared == [] or int(bench.compared[0].id[-3]) >= 5


@pytest.mark.job
def test_an_edit_that_crashes_is_not_taken_for_a_plan_too_large(bench: Bench) -> None:
    crashed = Measurement(None, False, "the job failed on rank 0 after 0 steps")
    searched(bench, 1000, {"as it is": [seen(325)], "changed": [crashed, seen(330)]})
    assert bench.compared == [] and len(bench.dropped) == 1 and "the job failed" in bench.dropped[0]


@pytest.mark.job
def test_an_edit_without_the_planned_effect_is_dropped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prepared, "more_blocks", 2)
    searched(bench, 400, {"as it is": [seen(325)], "changed": [seen(350)]})
    assert bench.compared == [] and "5 blocks are checkpointed instead of 3" in bench.dropped[0]


@pytest.mark.job
def test_nothing_is_planned_beyond_the_limit_or_without_a_measurement(bench: Bench) -> None:
    searched(bench, 350, {"as it is": [seen(325)], "changed": [seen(325)]})
    assert bench.compared == [] and any("there is no headroom" in line for line in bench.said)
    stage, state = searched(bench, 900, {"as it is": [Measurement(None, False, "no step")], "changed": []})
    assert bench.compared == [] and any("could not be measured" in line for line in bench.said)
    spender = PlanGroup(
        id="s", rules=["memory/checkpointing-unneeded"], members=[], admissible=True, ratio_upper=1.2
    )
    assert not stage.holds(state, bench.plan(), spender)  # then the rules that only estimate have their turn


@pytest.mark.job
def test_what_breaks_the_training_is_not_tried_in_another_plan(bench: Bench) -> None:
    bench.outcomes = ["parity-broken", "faster"]
    searched(bench, 1000, {"as it is": [seen(325)], "changed": [seen(330)]})
    assert [group.rules for group in bench.compared] == [["memory/joint-checkpointing"]]
    assert bench.dropped == [f"{bench.compared[0].id}: parity-broken"]
    bench.outcomes = []


@pytest.mark.job
def test_what_waits_for_the_plan_and_what_a_kept_change_opens_again(bench: Bench) -> None:
    stage, state = bench.stage(1.0), bench.state()

    def group(rule: str) -> PlanGroup:
        return PlanGroup(id=rule, rules=[rule], members=[], admissible=True, ratio_upper=1.2)

    plan = bench.plan()
    assert stage.holds(state, plan, group("compile/blocks"))
    assert stage.holds(state, plan, group("memory/checkpointing-unneeded"))
    assert not stage.holds(state, plan, group("batching/padded-to-fixed-length"))
    stage._due = False
    assert not stage.holds(state, plan, group("compile/blocks"))

    def verdict(before: int, after: int) -> Verdict:
        arms = [
            ArmRecord(name=name, command=[], cwd="/", memory=MemoryPeak(allocated_bytes=size))
            for name, size in (("as it is", before), ("changed", after))
        ]
        return bench._compare(state, group("a/b"), None).model_copy(update={"arms": arms})

    stage.after_kept(verdict(100, 99))
    assert not stage.is_due(state, plan)
    stage.after_kept(verdict(100, 90))
    assert stage.is_due(state, plan)


@pytest.mark.job
def test_a_search_that_does_not_fit_into_the_minutes_stops_the_loop(bench: Bench) -> None:
    stage = bench.stage(1.0, Prepared)
    stage._options = replace(stage._options, max_minutes=0.01)
    state = bench.state()
    assert "limit of 0.01 minutes" in stage.go(state, bench.plan())
    # Two starts and the comparison of the plan they find: the command that goes on must not stop before it.
    assert state.needs_minutes > minutes_of_one(state, stage._options) > 0


@pytest.mark.job
def test_the_choice_leaves_the_plan_out(bench: Bench) -> None:
    stage = bench.stage(1.0)
    stage._options = LoopOptions(
        rules=RuleSources(),
        choice=Choice(exclude=("memory/*",)),
        verify=VerifyOptions(),
        memory_limit_gib=1.0,
    )
    assert not stage.is_due(bench.state(), bench.plan())


@pytest.mark.job
@pytest.mark.full  # minutes on two cores
@pytest.mark.parametrize(
    "style",
    [
        "function",
        "wrapper",  # FSDP2 on one gloo rank
        "transformers",
        "reentrant",
        "trainer",
    ],
)
def test_a_real_search_measures_plans_edits_and_tries_the_longest_batch(tmp_path: Path, style: str) -> None:
    made = Bench(tmp_path, style)
    free = made.stage(None)
    found = free._start(made.state(), "as it is", made.state().current, True)
    assert found.peaks is not None and found.peaks.block_bytes is not None
    limit = (found.peaks.peak_bytes + 3.5 * found.peaks.block_bytes) / 0.9
    stage, state = made.stage(limit / 2**30), made.state()
    assert stage.go(state, made.plan()) == ""  # the finished start is used again
    assert len(list((tmp_path / "trials" / "memory").glob("memory-*as-it-is*"))) == 1
    (group,) = made.compared
    assert group.rules == ["memory/joint-checkpointing"]
    assert 1 <= int(group.id.rpartition("@")[2].partition("x")[0]) <= 5
    assert any(line.startswith("It fits") for line in made.said), made.said
    command, base = made.jobs[-1].command, made.jobs[-1]
    losses = [
        subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True, timeout=200).stdout
        for words, cwd in (([*command], base.cwd), ([*made.observation.command], made.observation.cwd))
    ]
    told = [[line for line in text.splitlines() if line.startswith("loss ")] for text in losses]
    assert told[0] == told[1] and len(told[0]) == (40 if style == "trainer" else 64)


@pytest.mark.job
@pytest.mark.full
def test_a_trainer_gets_larger_micro_batches_and_as_much_less_accumulation(tmp_path: Path) -> None:
    made = Bench(tmp_path, "trainer")
    stage, state = made.stage(4.0), made.state()
    assert asked_micro_batch(made.observation) == 4
    peaks = Peaks(300 * MIB, 250 * MIB, 6, MIB, 2, 56)
    plan = Candidate(checkpointed=0, times=2, peak_bytes=400 * MIB, saved_frac=0.3)
    group = group_of(state, made.options, peaks, Limit(4096 * MIB, "test"), plan)
    assert group.rules == ["memory/joint-checkpointing", "memory/joint-micro-batch"]
    assert group.parity == "token-exact"
    job = made._patch(state, group)
    (source,) = [Path(file.shadow).read_text() for file in job.files if file.kind == "source"]
    for wanted in (
        "per_device_train_batch_size=8", "gradient_accumulation_steps=1", "gradient_checkpointing=False",
    ):  # fmt: skip
        assert wanted in source
    outcome, peak = stage._try_longest(state, group, job, plan, peaks, 4096 * MIB)
    assert outcome == "fits" and peak is not None and peak > 100 * MIB  # also: a step has one micro-batch now


@pytest.mark.job
@pytest.mark.full
def test_a_killed_search_goes_on_with_what_it_measured(tmp_path: Path) -> None:
    start = [
        sys.executable,
        "-m",
        "autotune",
        "optimize",
        "--steps",
        "5",
        "--runs-dir",
        str(tmp_path / "runs"),
    ]
    choice = ["--select", "memory/*", "--max-pairs", "2", "--parity-steps", "5"]
    job = ["--", sys.executable, str(SCRIPT), *WORDS]
    process = subprocess.Popen(
        [*start, *choice, *job], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 400
    found: list[Path] = []
    while time.monotonic() < until and process.poll() is None and not found:
        found = list((tmp_path / "runs").glob("at-*/trials/memory/memory-*/observation.json"))
        time.sleep(0.1)
    assert found, "the loop ended before the memory was measured"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stamp = found[0].stat().st_mtime_ns
    (run,) = (tmp_path / "runs").glob("at-*")
    again = [*start, *choice, "--json", "--resume", run.name]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    assert found[0].stat().st_mtime_ns == stamp
    events = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    measured = [event for event in events if event.get("purpose") == "memory" and event["arm"] == "as it is"]
    assert any(event["wall_s"] == 0.0 for event in measured)
    assert any(event["event"] == "memory" and "It fits" in event["text"] for event in events)
