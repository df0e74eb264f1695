"""From records to what the page shows: sections, numbers, diffs. No browser."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from html_material import HOSTILE, full_material, full_run, observation, verdict

from autotune.cli.main import run as cli
from autotune.errors import InputError
from autotune.records.facts import FactValue
from autotune.records.findings import Diagnosis, Finding, Fix, FixStep, Gain
from autotune.records.ladder import Ladder, Rung
from autotune.records.observation import EnvironmentRecord, Observation, RankObservation, StepRecord
from autotune.records.run import RunRecord
from autotune.records.timeline import TracePicture
from autotune.report.html.changes import changes_of
from autotune.report.html.compose import compose
from autotune.report.html.diffs import file_of, split_diff
from autotune.report.html.gather import Material, Other, gather, trace_file_of
from autotune.report.html.page import render, script_safe
from autotune.report.html.sections.batches import bins
from autotune.report.html.sections.device import thin
from autotune.report.html.sections.split import step_slices
from autotune.report.html.sections.steps import longest_of_each
from autotune.report.html.sections.trials import compared
from autotune.report.html.view import Figure, FindingView, Page, Table
from autotune.store import write_record
from autotune.trace.summary import summarize

TRACES = Path(__file__).parent.parent / "traces"
AFTER = TRACES / "h200_qwen35_2b4_packed_varlen_1step.json.gz"


@pytest.fixture(scope="module")
def material(from_trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Material:
    return full_material(full_run(from_trace, tmp_path_factory.mktemp("html") / "at-20261129-120000-full"))


@pytest.fixture(scope="module")
def page(material: Material) -> Page:
    return compose(material)


def _ids(page: Page) -> list[str]:
    return [section.id for section in page.sections]


def test_a_full_run_has_every_section_and_a_trace_only_what_it_knows(page: Page, from_trace: Path) -> None:
    ids = _ids(page)
    assert ids[:10] == [
        "ladder", "timeline", "time", "findings", "proof", "tables", "batches", "device", "memory", "steps",
    ]  # fmt: skip
    assert "passed" in ids[10:]
    alone = compose(gather(from_trace))
    assert set(_ids(alone)) & {"ladder", "proof", "batches", "device", "steps"} == set()
    assert {"time", "timeline", "findings", "tables"} <= set(_ids(alone))
    assert alone.proof == ""


def test_no_section_is_empty_and_every_figure_has_its_numbers(page: Page) -> None:
    figures = [b for s in page.sections for b in s.blocks if isinstance(b, Figure)]
    assert all(section.blocks for section in page.sections)
    assert len({figure.id for figure in figures}) == len(figures) >= 10
    for figure in figures:
        assert figure.data.rows and len(figure.label) > 20
        assert all(len(row) == len(figure.data.head) for row in figure.data.rows), figure.id


def test_a_trace_that_is_gone_leaves_a_note_and_no_timeline(material: Material) -> None:
    gone = replace(material, before=replace(material.before, picture=None), notes=["it is not kept any more"])
    shown = compose(gone)
    assert "timeline" not in _ids(shown)
    empty = TracePicture(step=None, closer=None, memory=None)
    assert "timeline" not in _ids(compose(replace(material, before=replace(material.before, picture=empty))))
    assert shown.sections[-1].id == "notes"


def test_the_trace_file_of_a_run_and_its_loss(from_trace: Path, tmp_path: Path) -> None:
    assert trace_file_of(from_trace) == TRACES / "h200_qwen35_2b4_padded_fallback_1step.json.gz"
    text = (from_trace / "run.json").read_text().replace(str(TRACES), str(tmp_path))
    copy = tmp_path / "at-20261129-000000-copy"
    copy.mkdir()
    (copy / "run.json").write_text(text)
    for name in ("diagnosis.json", "trace_summary.json"):
        (copy / name).write_bytes((from_trace / name).read_bytes())
    found = gather(copy)
    assert found.before.picture is None and "not kept" in found.notes[0]


def test_both_sides_of_the_founding_case(from_trace: Path) -> None:
    from autotune.data import data_dir

    after = summarize([AFTER], tables_dir=data_dir("rules") / "_tables")
    shown = compose(gather(from_trace, against=Other(after, AFTER)))
    tables = next(s for s in shown.sections if s.id == "tables").blocks
    totals = tables[0]
    assert isinstance(totals, Table)
    assert ["GPU kernels", "38,107", "7,770", "0.20x"] in totals.rows
    kernels = tables[2]
    assert isinstance(kernels, Table) and {"new", "gone"} <= set(kernels.marks)
    timelines = [b for s in shown.sections if s.id == "timeline" for b in s.blocks]
    assert len(timelines) == 4
    assert any(tile.value == "38,107 → 7,770" for tile in shown.tiles)


def test_shares_of_a_step() -> None:
    def fact(number: float) -> FactValue:
        return FactValue(state="value", value=number)

    gpu = {
        "launch.gpu_busy_frac": fact(0.4),
        "comm.exposed_frac": fact(0.1),
        "data.loader_wait_frac": fact(0.9),
    }
    slices = {name: share for name, _, share in step_slices(gpu)}
    assert sum(slices.values()) == pytest.approx(1.0)
    assert slices["waiting for data"] == pytest.approx(0.6)  # never more than the GPU leaves
    assert step_slices({}) == [] and step_slices({"data.loader_wait_frac": fact(0.1)}) == []


def test_bins_hold_every_length() -> None:
    for lengths in ([1, 1, 1, 2], [5, 17, 90, 256, 256], [1024, 1024], [3, 100_000]):
        edges, counts = bins(lengths)
        assert sum(counts) == len(lengths) and len(edges) == len(counts) + 1 <= 27
        assert edges[0] <= min(lengths) and max(lengths) < edges[-1]


def test_samples_are_thinned_without_losing_the_ends() -> None:
    samples = observation().device_samples
    few = thin(samples, 50)
    assert len(few) == 50 and few[0].at_s == samples[0].at_s and few[-1].at_s == samples[-1].at_s


def test_of_many_steps_the_longest_are_drawn() -> None:
    steps = [StepRecord(index=n, end_s=float(n), duration_ms=1.0) for n in range(5000)]
    steps[4321] = StepRecord(index=4321, end_s=1.0, duration_ms=99.0)
    few = longest_of_each(steps, 800)
    assert len(few) <= 800 and max(step.duration_ms for step in few) == 99.0
    assert longest_of_each(steps[:5], 800) == steps[:5]


def test_ratios_of_cumulative_arms_are_named_by_what_they_add() -> None:
    made = verdict()
    names = [compared(c, [arm.name for arm in made.arms], {"b": "Packing"}) for c in made.contrasts]
    assert names == ["change 1: a", "changes 1 to 2 together", "change 2: Packing"]
    assert compared(made.contrasts[0], ["as it is", "a"], {}) == "a against as it is"


def test_a_finding_says_what_became_of_it(page: Page) -> None:
    first = next(s for s in page.sections if s.id == "findings").blocks[0]
    assert isinstance(first, FindingView)
    assert first.tried == "Kept: 3.00x measured in this run."
    assert first.command == f"autotune apply latest --select {first.rule}"
    assert first.places[0][0] == f"{HOSTILE}.py:7" or first.places[0][0].endswith(":7")


def test_diffs_are_split_by_file_and_sign() -> None:
    text = (
        "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n"
        "diff --git a/y.py b/y.py\nnew file mode 100644\n--- /dev/null\n+++ b/y.py\n"
        "@@ -0,0 +1 @@\n+--- not a head\n"
    )
    first, second = split_diff(text)
    assert (first.name, first.added, first.removed, first.new) == ("x.py", 1, 1, False)
    assert [line.sign for line in first.lines] == ["@", "-", "+", " "]
    assert (second.name, second.added, second.new) == ("y.py", 1, True)
    assert second.lines[-1].text == "--- not a head"
    long = file_of("z", ["--- a", "+++ b", *["+x"] * 900])
    assert len(long.lines) == 400 and long.left_out == 500 and long.added == 900


def test_edits_are_shown_without_being_made(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hi')\n")
    config = tmp_path / "job.yaml"
    config.write_text("batch: 1\nworkers: 0\n")
    seen = Observation(
        mode="profile", command=["python", "train.py", "--config", "job.yaml"], cwd=str(tmp_path),
        exit_code=0, wall_s=1.0, expected_ranks=1,
        ranks=[
            RankObservation(
                rank=0, world_size=1, status="stopped",
                environment=EnvironmentRecord(python="3.11", torch="2.13"),
            )
        ],
    )  # fmt: skip
    steps = [
        FixStep(action="set_key", arguments={"key": "workers", "value": 4}),
        FixStep(action="set_env", arguments={"name": "OMP_NUM_THREADS", "value": "2"}),
    ]
    finding = Finding(
        rule="data/workers", title="t", severity="high", confidence="high", message="", evidence=[],
        gain=Gain(), fixes=[Fix(surface="config", title="more workers", steps=steps)], parity="numeric",
    )  # fmt: skip
    diagnosis = Diagnosis(run="r", verdict="v", facts={}, findings=[finding], undecided=[], passed=[])
    change = changes_of(diagnosis, seen)["data/workers"]
    assert [file.name for file in change.files] == ["job.yaml"], change
    assert [(line.sign, line.text) for line in change.files[0].lines if line.sign in "+-"] == [
        ("-", "workers: 0"), ("+", "workers: 4"),
    ]  # fmt: skip
    assert "OMP_NUM_THREADS=2" in change.command
    assert config.read_text() == "batch: 1\nworkers: 0\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job.yaml", "train.py"]
    (tmp_path / "job.yaml").unlink()
    assert changes_of(diagnosis, seen)["data/workers"].reason


def test_text_of_the_job_cannot_end_a_script_or_open_an_element(page: Page) -> None:
    text = render(page)
    assert text.count("<script") == text.count("</script>") == 3
    assert "<img" not in text and "onerror=alert(1)>" not in text
    holder = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)
    assert holder is not None
    figures = json.loads(holder.group(1))["figures"]
    assert set(figures) == {f"plot-{b.id}" for s in page.sections for b in s.blocks if isinstance(b, Figure)}
    body = text[: holder.start()]
    assert not re.search(r"""(src|href|action|data)\s*=\s*["']?\s*(https?:)?//""", body)
    assert json.loads(script_safe(json.dumps({"a": HOSTILE}))) == {"a": HOSTILE}


def test_plotly_is_there_once(page: Page) -> None:
    from autotune.report.html.figures.draw import plotly_script

    text, library = render(page), plotly_script()
    assert text.count(library[:2000]) == 1
    assert len(text) < len(library) + 600_000


def test_without_plotly_one_line_names_the_extra(
    from_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(InputError, match="plotly"):
        render(compose(gather(from_trace)))
    assert cli(["report", str(from_trace), "--html", str(tmp_path / "r.html")]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "pip install 'autotune-training[report]'" in said[0]
    assert not (tmp_path / "r.html").exists()


def test_the_verb_writes_a_file_and_refuses_a_lone_against(
    from_trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "r.html"
    assert cli(["report", str(from_trace), "--html", str(target), "--against", str(AFTER)]) == 0
    assert target.read_text().startswith("<!doctype html>") and "7,770" in target.read_text()
    assert cli(["report", str(from_trace), "--against", str(AFTER)]) == 2
    assert "--html" in capsys.readouterr().err


def test_a_run_that_knows_nothing_is_a_page_with_its_verdict(tmp_path: Path) -> None:
    run = tmp_path / "at-20261129-000000-bare"
    diagnosis = Diagnosis(
        run=run.name, verdict="The job ran out of memory.", facts={}, findings=[], undecided=[], passed=[]
    )
    card = RunRecord(
        id=run.name, kind="job", created="2026-11-29T12:00:00Z", autotune="0.1.0", state="failed",
        command=["x"], cwd="/",
    )  # fmt: skip
    write_record(run / "run.json", card)
    write_record(run / "diagnosis.json", diagnosis)
    bare = observation().model_copy(update={"ranks": [], "device_samples": []})
    write_record(run / "launches" / "observe" / "observation.json", bare)
    write_record(run / "ladder.json", Ladder(run=run.name, state="failed", rungs=[Rung(name="as it was")]))
    shown = compose(gather(run))
    assert _ids(shown) == ["ladder"] and shown.tiles == []
    text = render(shown)
    assert "The job ran out of memory." in text and text.count("<script") == 1 and len(text) < 100_000
