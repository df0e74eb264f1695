"""The terminal report: one screen, 80 columns, no colour, nothing claimed that is not known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recorded_runs import TRACE, finding, value

from autotune.cli.main import run
from autotune.records.facts import FactSheet
from autotune.records.findings import CodeSite, Diagnosis, Evidence
from autotune.records.ladder import Ladder, LoopState, Rung
from autotune.records.verdict import Contrast, ParityResult, Settings, Verdict
from autotune.report.figures import best_ratio, figures, matrix_unit_frac, step_bar
from autotune.report.ladder import render_ladder
from autotune.report.sources import sources_of
from autotune.report.terminal import _sites, render_diagnosis
from autotune.report.verdict import render_verdict
from autotune.report.wrapping import duration, durations, wrap
from autotune.store import read_record, write_record


def _diagnosis(folder: Path) -> Diagnosis:
    return read_record(folder / "diagnosis.json", Diagnosis)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kind", ["from_trace", "from_job"])
def test_it_is_plain_and_narrow(kind: str, full: bool, request: pytest.FixtureRequest) -> None:
    text = render_diagnosis(_diagnosis(request.getfixturevalue(kind)), full=full, price_per_gpu_hour=3.0)
    assert "\x1b" not in text
    long = [line for line in text.splitlines() if len(line) > 80 and not re.search(r"\S{70}", line)]
    assert long == []


def test_the_first_sentence_names_cost_cause_and_worth(from_trace: Path) -> None:
    head = render_diagnosis(_diagnosis(from_trace)).split("\n\n")[0].replace("\n", " ")
    assert head.startswith("The GPU waits for the CPU 71 % of the profiled step because linear-attention")
    assert "worth up to 8.1x" in head


@pytest.mark.parametrize(
    ("name", "head"),
    [
        (
            "a100_2rank_ddp_nccl_args_rank0",
            "The GPU waits for the CPU to launch work (it idles 76 % of the profiled step); fixing that",
        ),
        (
            "mi300x_8rank_resnet_actckpt_rank0",
            "The GPUs wait for communication that nothing hides (62 % of the step is exposed communication);",
        ),
    ],
)
def test_the_first_sentence_names_the_cost_of_other_causes(
    name: str, head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(TRACE.with_name(f"{name}.json.gz"))
    assert run(["analyze", "--quiet", "--runs-dir", str(tmp_path), "--trace", trace]) == 0
    assert capsys.readouterr().out.replace("\n", " ").startswith(head)


def test_utilisation_stands_next_to_real_use(from_job: Path) -> None:
    text = " ".join(" ".join(figures(FactSheet(facts=_diagnosis(from_job).facts), [], None)).split())
    assert "nvidia-smi says 99 % utilisation" in text
    assert "GPU busy 42 % of the step, tensor cores" in text and "6 % of the peak FLOP/s (MFU)" in text


def test_figures_that_are_not_known_are_not_shown(from_trace: Path) -> None:
    text = "\n".join(figures(FactSheet(facts=_diagnosis(from_trace).facts), [], 2.0))
    assert "nvidia-smi" not in text and "MFU" not in text and "whole job" not in text and "cost" not in text
    assert figures(FactSheet(facts={}), [], None) == [] and step_bar(FactSheet(facts={})) == []


def test_hours_and_cost_before_and_at_best(from_job: Path) -> None:
    diagnosis = _diagnosis(from_job)
    best = best_ratio(diagnosis.findings)
    assert best is not None
    text = " ".join(" ".join(figures(FactSheet(facts=diagnosis.facts), diagnosis.findings, 2.5)).split())
    assert "26 h 00 min projected (3 epochs)" in text
    assert f"{duration(26 / best)} at best" in text
    assert f"260.00 (4 GPUs at 2.5 an hour each); {260 / best:.2f} at best" in text


@pytest.mark.parametrize(
    ("minutes", "shown"),
    [
        ((46 / 60, 13 / 60), ["46 s", "13 s"]),
        ((3.0, 0.5), ["180 s", "30 s"]),
        ((15.0, 3.2), ["15 min", "3 min"]),
        ((15.0, 0.7), ["15.0 min", "0.7 min"]),
        ((95.0, 20.0), ["95 min", "20 min"]),
        ((1560.0, 780.0), ["26 h 00 min", "13 h 00 min"]),
    ],
)
def test_times_beside_one_another_have_one_unit(minutes: tuple[float, ...], shown: list[str]) -> None:
    assert durations(*(each / 60 for each in minutes)) == shown


def test_what_is_only_to_be_known_comes_with_its_number(from_job: Path) -> None:
    diagnosis = _diagnosis(from_job)
    first = diagnosis.findings[0].model_copy(
        update={
            "severity": "info", "explained_by": None,
            "evidence": [
                Evidence(fact="a.name", value="yes", text="a name"),
                Evidence(fact="a.share", value=0.4, unit="frac", text="40 % of them"),
            ],
        }
    )  # fmt: skip
    text = " ".join(render_diagnosis(diagnosis.model_copy(update={"findings": [first]})).split())
    assert f"{first.rule}: for your information: 40 % of them" in text


def test_a_price_without_a_gpu_costs_nothing_and_says_so(from_job: Path) -> None:
    facts = {**_diagnosis(from_job).facts, "run.has_gpu": value(False)}
    assert any("the job uses no GPU" in line for line in figures(FactSheet(facts=facts), [], 2.5))


def test_the_ladder_tells_the_measured_cost(from_job: Path) -> None:
    ladder = sources_of(from_job).ladder
    assert ladder is not None
    text = render_ladder(ladder, price_per_hour=10.0)
    assert "whole job: 26 h 00 min -> 13 h 00 min projected" in text
    assert "cost: 260.00 -> 130.00 at 10 an hour for all GPUs" in text


def test_a_verdict_is_told_below_the_diagnosis_with_hours_and_cost(
    from_job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (from_job / "ladder.json").unlink()
    settings = Settings(
        tier="numeric", min_pairs=3, max_pairs=8, steps=12, warmup_steps=3, parity_steps=20, seed=0
    )
    parity = ParityResult(tier="numeric", used="numeric", outcome="equal", sentence="loss equal")
    verdict = Verdict(
        outcome="faster", sentence="2.00x faster.", ratio=2.0, parity=parity, arms=[], trials=[],
        settings=settings,
    )  # fmt: skip
    write_record(from_job / "trials" / "verify" / "verdict.json", verdict)
    assert run(["report", str(from_job), "--price-per-gpu-hour", "2.5"]) == 0
    shown = capsys.readouterr().out
    assert "Verified: 2.00x faster.\nwhole job: 26 h 00 min -> 13 h 00 min projected\n" in shown
    assert "cost: 260.00 -> 130.00 at 10 an hour for all GPUs" in shown
    slower = verdict.model_copy(update={"outcome": "slower", "sentence": "slower.", "ratio": 0.9})
    write_record(from_job / "trials" / "verify" / "verdict.json", slower)
    assert run(["report", str(from_job)]) == 0
    assert "projected\n" not in capsys.readouterr().out.partition("Verified: slower.")[2]


@pytest.mark.parametrize("busy", [0.0, 0.004, 0.31, 0.999, 1.0])
def test_the_bar_is_full_for_every_split(busy: float) -> None:
    facts = FactSheet(
        facts={
            "launch.gpu_busy_frac": value(busy),
            "data.loader_wait_frac": value(0.2),
            "comm.exposed_frac": value(0.1),
            "kernels.gemm_frac": value(0.3),
            "attention.gpu_frac": value(0.01),
            "kernels.elementwise_frac": value(0.4),
        }
    )
    bar = re.search(r"\[(.*)\]", step_bar(facts)[1])
    assert bar is not None and len(bar[1]) == 60 and " " not in bar[1]


def test_kinds_of_work_that_overlap_are_not_split() -> None:
    facts = FactSheet(
        facts={
            "launch.gpu_busy_frac": value(0.8),
            "kernels.gemm_frac": value(0.7),
            "kernels.elementwise_frac": value(0.6),
        }
    )
    assert "GPU computing 80 %" in " ".join(step_bar(facts))


def test_tensor_cores_need_known_formats() -> None:
    known = {"kernels.gemm_frac": value(0.5)}
    assert matrix_unit_frac(FactSheet(facts=known)) is None
    half = {**known, "precision.fp32_gemm_frac": value(0.4)}
    assert matrix_unit_frac(FactSheet(facts=half)) == pytest.approx(0.3)
    attending = {**half, "attention.backend": value("flash"), "attention.gpu_frac": value(0.1)}
    assert matrix_unit_frac(FactSheet(facts=attending)) == pytest.approx(0.4)


def test_saved_traces_lead_to_the_job_not_to_apply(from_trace: Path) -> None:
    text = render_diagnosis(_diagnosis(from_trace), job=False)
    assert "autotune apply" not in text
    assert "next: autotune analyze -- COMMAND" in text


def test_what_is_undecided_says_what_decides_it_and_full_names_the_rules(from_trace: Path) -> None:
    diagnosis = _diagnosis(from_trace)
    short, full = render_diagnosis(diagnosis), render_diagnosis(diagnosis, full=True)
    assert f"Could not be decided ({len(diagnosis.undecided)})" in short
    assert "run the job under autotune analyze" in short
    assert "data/loader-stall" not in short and "data/loader-stall" in full
    assert len(full.splitlines()) > 1.5 * len(short.splitlines())


def test_symptoms_take_two_lines(from_trace: Path) -> None:
    text = render_diagnosis(_diagnosis(from_trace))
    assert "launch/launch-bound: a symptom of kernels/linear-attention-fallback" in text


def test_a_finding_without_anything_but_a_title_is_shown(from_trace: Path) -> None:
    bare = _diagnosis(from_trace).model_copy(update={"findings": [finding("Only a title", "")]})
    assert "Only a title" in render_diagnosis(bare)


def test_trace_points_to_the_timeline(from_trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", str(TRACE), "--rows", "1"]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"open {TRACE} in ui.perfetto.dev (it stays local)")


@pytest.mark.parametrize("told", ["0.8 %", "168 ms", "16.3 µs", "3 h 05 min", "79.2 GiB"])
def test_a_number_keeps_its_unit(told: str) -> None:
    for length in range(60, 82):
        lines = wrap(f"{'x' * length} {told}; and so on", 2)
        assert any(told.rpartition(" ")[0].split()[-1] + " " + told.split()[-1] in line for line in lines)
        assert " ".join(" ".join(lines).split()) == f"{'x' * length} {told}; and so on"


def test_a_verdict_names_its_run_and_tells_nothing_twice() -> None:
    speed = "2.00x as fast (98% interval 1.90-2.11, 3 pairs, ms/step)"
    settings = Settings(
        tier="numeric", min_pairs=3, max_pairs=8, steps=12, warmup_steps=3, parity_steps=20, seed=0
    )
    verdict = Verdict(
        outcome="faster", sentence=f"{speed}; loss equal", ratio=2.0, arms=[], trials=[], settings=settings,
        parity=ParityResult(tier="numeric", used="numeric", outcome="equal", sentence="loss equal"),
        contrasts=[
            Contrast(
                reference="original", candidate="patched", outcome="faster", unit="ms/step", sentence=speed,
                pair_ratios=[1.95, 2.05],
            )
        ],
    )  # fmt: skip
    text = " ".join(render_verdict(verdict, "at-x").split())
    assert text.startswith("at-x: 2.00x as fast") and text.count("2.00x") == text.count("loss equal") == 1
    assert "patched against original, by pair: 1.950, 2.050" in text and "training: equal" in text


@pytest.mark.parametrize("state", ["interrupted", "failed", "budget"])
def test_a_loop_that_ended_early_does_not_say_nothing_to_do(state: LoopState) -> None:
    ladder = Ladder(run="at-x", state=state, rungs=[Rung(name="as it was")], stop_reason=state)
    first = render_ladder(ladder).splitlines()[0]
    assert first.startswith("Nothing ") and "proven" in first and "to do" not in first
    finished = ladder.model_copy(update={"state": "finished"})
    assert render_ladder(finished).startswith("Nothing to do: ")


def test_a_memory_plan_shows_what_the_longest_batch_took() -> None:
    kept = Rung(name="plan", ratio_to_first=1.2, predicted_peak_gib=70.5, longest_peak_gib=68.25)
    ladder = Ladder(run="r", state="finished", rungs=[Rung(name="as it was"), kept], outcome="faster")
    assert "memory, longest batch: 68.25 GiB measured, 70.50 GiB predicted" in render_ladder(ladder)


def test_each_proof_of_the_ladder_is_told_once() -> None:
    first = Rung(name="as it was")
    rungs = [first, Rung(name="one", parity="losses identical"), Rung(name="two", parity="losses identical")]
    ladder = Ladder(run="r", state="finished", rungs=rungs, outcome="faster", trials=1, stop_reason="done")
    text = render_ladder(ladder)
    assert text.count("training unchanged: losses identical") == 1 and "done; 1 trial, " in text
    other = ladder.model_copy(update={"rungs": [*rungs[:2], Rung(name="two", parity="within rounding")]})
    text = render_ladder(other)
    assert "training unchanged with rung 1: losses identical" in text
    assert "training unchanged with rung 2: within rounding" in text


def test_a_loop_that_goes_on_does_not_send_the_user_elsewhere(from_job: Path) -> None:
    assert "\nmore: autotune report" in render_diagnosis(_diagnosis(from_job))
    text = render_diagnosis(_diagnosis(from_job), goes_on=True)
    assert "\nmore: " not in text and "\nnext: " not in text


def test_the_one_other_place_of_a_finding_is_shown_and_not_counted() -> None:
    sites = [CodeSite(file="/job/train.py", line=line) for line in (35, 61, 70)]
    assert _sites(sites[:2], 1) == ["      at /job/train.py:35", "      at /job/train.py:61"]
    assert _sites(sites, 1) == ["      at /job/train.py:35", "      and 2 more places"]
