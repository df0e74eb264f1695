"""The fault bench: its data are sound, every edit applies once, and the score counts what it says."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.faults import report, scores  # noqa: E402
from bench.faults.analyse import (  # noqa: E402
    Analysis,
    Answer,
    Said,
    evidence_lines,
    installed,
    keep_checked,
    prepare,
)
from bench.faults.cases import Case, Edit, edited_sources, load_cases  # noqa: E402
from bench.faults.docs import headline  # noqa: E402
from bench.faults.fix import Turn, load_rows, summary, totals, write_rows  # noqa: E402
from bench.faults.measure import MEASURED  # noqa: E402
from bench.faults.merge import newest_answers, newest_rows  # noqa: E402
from bench.faults.score import mark, total  # noqa: E402
from bench.faults.turns import let_train, pairs  # noqa: E402

CASES = load_cases()
SICK = [case for case in CASES if not case.healthy]
CAUSES = {"eager-attention": ["attention/a"], "padding": ["batching/p"], "loader": ["input/l"]}


def test_the_bench_is_as_large_as_it_says():
    singles = [case for case in SICK if len(case.slugs) == 1]
    assert len(singles) >= 44
    assert sum(case.needs == "cpu" for case in singles) >= 34
    assert sum(len(case.slugs) > 1 for case in SICK) >= 6
    assert sum(case.healthy for case in CASES) >= 10
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_job_is_python_and_complete(case):
    for name, text in edited_sources(case).items():
        ast.parse(text, name)
    assert case.needs in ("cpu", "gpu")
    assert case.sick in ("time", "memory", "correctness")
    if not case.healthy:
        assert case.cause and case.fix
        assert case.edits or case.env or case.files or case.absent or case.args
    if len(case.slugs) == 1:
        assert case.does and case.named_by
        shown = evidence_lines(case) or [x for x in (*case.env, *case.files) if case.named_by in x]
        assert shown or case.absent


def test_an_edit_that_no_longer_applies_is_an_error():
    with pytest.raises(ValueError, match="applies 0 times"):
        edited_sources(Case("x", "dense", "x", edits=(Edit("no such text", ""),)))
    with pytest.raises(ValueError, match=r"applies \d+ times"):
        edited_sources(Case("x", "dense", "x", edits=(Edit("args", ""),)))


def test_every_cpu_fault_was_seen_to_cost_something():
    import yaml

    measured = yaml.safe_load(MEASURED.read_text())
    for case in SICK:
        if len(case.slugs) > 1:
            continue  # made of measured parts
        if case.needs == "cpu" and case.sick == "time":
            assert measured[case.id]["slowdown"] >= 1.02, case.id
        if case.needs == "cpu" and case.sick == "memory":
            assert measured[case.id]["memory_ratio"] >= 1.02, case.id


def said(rule, severity="high", *places):
    return Said(rule, rule, severity, None, tuple(places))


def answer(case, *findings, failure="", lines=()):
    return Answer(case.id, 10.0, 0, "", "", findings, failure, lines)


ONE = Case("one", "dense", "one", slugs=("eager-attention",), also=("padding",), cause="x", fix="x")
TWO = Case("two", "dense", "two", slugs=("eager-attention", "padding"), cause="x", fix="x")
FINE = Case("fine", "dense", "fine")


def test_first_named_and_false_alarms():
    m = mark(ONE, answer(ONE, said("input/l"), said("attention/a"), said("x/y", "info")), CAUSES)
    assert (m.first, m.named, [f.rule for f in m.false_alarms]) == (False, 1, ["input/l"])
    m = mark(ONE, answer(ONE, said("x/y", "info"), said("attention/a", "low")), CAUSES)
    assert (m.first, m.named, m.false_alarms) == (True, 1, ())


def test_info_names_nothing_and_an_alternative_names():
    m = mark(ONE, answer(ONE, said("attention/a", "info")), CAUSES)
    assert (m.first, m.named) == (False, 0)
    m = mark(ONE, answer(ONE, said("batching/p", "medium")), CAUSES)
    assert (m.first, m.named, m.false_alarms) == (True, 1, ())


def test_each_cause_of_a_pair_counts():
    m = mark(TWO, answer(TWO, said("batching/p")), CAUSES)
    assert (m.first, m.named, m.planted, m.all_named) == (True, 1, 2, False)


def test_the_place_is_compared_by_lines():
    lines = ("dense.py:40",)
    m = mark(ONE, answer(ONE, said("attention/a", "high", "dense.py:38-41"), lines=lines), CAUSES)
    assert m.pointed is True
    m = mark(ONE, answer(ONE, said("attention/a", "high", "dense.py:41-44"), lines=lines), CAUSES)
    assert m.pointed is False
    m = mark(ONE, answer(ONE, said("input/l", "high", "dense.py:40-40"), lines=lines), CAUSES)
    assert m.pointed is None


def test_totals():
    marks = [
        mark(ONE, answer(ONE, said("attention/a")), CAUSES),
        mark(ONE, answer(ONE, said("input/l")), CAUSES),
        mark(ONE, answer(ONE, failure="it crashed"), CAUSES),
        mark(TWO, answer(TWO, said("batching/p"), said("attention/a")), CAUSES),
        mark(FINE, answer(FINE, said("x/y", "info")), CAUSES),
        mark(FINE, answer(FINE, said("x/y", "low")), CAUSES),
        mark(FINE, answer(FINE, failure="it crashed"), CAUSES),
    ]
    t = total(marks)
    assert (t.single, t.single_named, t.single_first) == (3, 1, 1)
    assert (t.pair_causes, t.pair_causes_named, t.pairs, t.pairs_first) == (2, 2, 1, 1)
    assert (t.false_alarms, t.healthy, t.healthy_clean, t.healthy_findings) == (1, 3, 1, 1)
    assert t.recall == pytest.approx(1 / 3)
    assert t.seconds == 70.0
    assert "1 of 3 named (33 %)" in report.summary(t)[0]


def test_every_slug_has_its_rules_listed():
    causes = scores.load_causes()
    slugs = {slug for case in SICK for slug in (*case.slugs, *case.also)}
    assert slugs == set(causes)


def test_stored_scores_can_be_judged_again():
    stored = sorted(scores.SCORES.glob("*.json"))
    for path in stored:
        if path.name.startswith("fix"):
            continue
        heading, answers = scores.read(path)
        assert answers and heading["machine"] and heading["command"]
        marks, totals = scores.judge(CASES, answers, scores.load_causes())
        assert len(marks) == totals.single + totals.pairs + totals.healthy


def test_the_share_of_a_slowdown_that_is_recovered():
    assert Turn(100.0, 200.0, 100.0).share == pytest.approx(1.0)
    assert Turn(100.0, 200.0, 150.0).share == pytest.approx(0.5)
    assert Turn(100.0, 200.0, 80.0).share == pytest.approx(1.2)  # faster than the reference
    assert Turn(100.0, 101.0, 60.0).share is None  # this turn shows no slowdown to recover
    said = summary(
        [Turn(100.0, 200.0, 100.0), Turn(160.0, 180.0, 110.0)]
    )  # something else ran beside the second
    assert said["recovered"] == pytest.approx(1.0) and said["slowdown"] == pytest.approx(1.8)
    assert said["recovered_range"] == [1.0, 3.5] and said["turns_ms"][1] == [160.0, 180.0, 110.0]
    assert summary([Turn(100.0, 101.0, 60.0)])["recovered"] is None


def test_what_is_not_recovered_and_what_broke_is_counted():
    rows = [
        {"case": "a", "kept": ["x/y"], "parity": "equal", "recovered": 0.95},
        {"case": "b", "kept": ["x/z"], "parity": "broken", "recovered": 0.5},
        {"case": "c", "kept": [], "parity": "-", "recovered": 0.0},
        {"case": "d", "kept": [], "parity": "-", "recovered": None, "failure": "no answer"},
    ]
    sums = totals(rows)
    assert (sums["faults"], sums["recovered"], sums["kept"]) == (4, 1, 2)
    assert sums["broken"] == ["b"] and sums["failed"] == ["d"]
    rows.append({"case": "e", "kept": [], "parity": "-", "recovered": 0.0, "slowdown": 1.004})
    more = totals(rows)  # told apart, and counted all the same
    assert more["cost_nothing"] == ["e"] and (more["faults"], more["recovered"]) == (5, 1)


def test_pieces_of_a_run_are_put_together_without_losing_a_result(tmp_path):
    good = {"case": "gc-per-step", "kept": ["x/y"], "parity": "equal", "recovered": 0.95}
    first = [good | {"machine": "2 cores, A", "command": "c"}]
    second = [
        {"case": "gc-per-step", "kept": [], "failure": "no answer", "machine": "2 cores, B", "command": "c"},
        {"case": "pad-to-max", "kept": [], "recovered": 0.0, "machine": "2 cores, B", "command": "c"},
    ]
    write_rows(tmp_path / "all.json", newest_rows([first, second]), [case.id for case in CASES])
    rows = load_rows(tmp_path / "all.json")
    assert [row["case"] for row in rows] == ["pad-to-max", "gc-per-step"]  # in the order of the cases
    assert rows[1] == first[0]
    assert json.loads((tmp_path / "all.json").read_text())["machine"] == "2 cores, B; 2 cores, A"
    answers = newest_answers([[answer(ONE, said("attention/a"))], [answer(ONE, failure="it crashed")]])
    assert [(a.case, a.failure) for a in answers] == [("one", "")]


def test_a_score_says_how_long_the_whole_run_took(tmp_path):
    heading = scores.heading(False, "abc1234", 600.0, 0.02)
    scores.write(tmp_path / "all.json", [answer(CASES[0], said("attention/a"))], heading)
    read, answers = scores.read(tmp_path / "all.json")
    assert scores.judge(CASES, answers, CAUSES, read["wall_s"])[1].seconds == 600.0
    assert scores.judge(CASES, answers, CAUSES)[1].seconds == 10.0  # pieces: the sum over the jobs
    text = headline(read)
    assert "in one piece at commit abc1234" in text and "0.02 cores" in text
    assert "sum over the jobs" in headline({"command": "c", "when": "w", "machine": "m"})


def test_jobs_start_in_pairs_and_one_of_several_processes_goes_first():
    kinds = {"a": 1, "b": 1, "c": 1, "d": 2, "e": 2, "f": 2, "g": 1, "h": 1, "i": 1, "j": 1, "k": 1}
    cases = [
        Case(name, "dense", name, processes=count, absent=("torch",) if name == "k" else ())
        for name, count in kinds.items()
    ]  # fmt: skip
    together = [[case.id for case in pair] for pair in pairs(cases)]
    assert together == [["a", "b"], ["d", "c"], ["e"], ["f", "g"], ["h", "i"], ["j"], ["k"]]


def analysis(tmp_path, name, loads_s):
    """A process in the place of autotune, with a child in a session of its own in the place of the job."""
    made = object.__new__(Analysis)
    made.case, made.work, made.held_s = Case(name, "dense", name), tmp_path / name, 0.0
    made._held_at_s, made._ended_s, made._held, made.started_s = None, None, [], time.monotonic()
    (made.work / "runs" / "at-1" / "launches" / "observe" / "raw").mkdir(parents=True)
    job = f"[sys.executable, '-c', {JOB!r}, '{loads_s}']"
    start = f"import subprocess, sys; subprocess.run({job}, start_new_session=True)"
    made.process = subprocess.Popen([sys.executable, "-c", start], cwd=made.work)
    return made


JOB = """
import pathlib, sys, time
here = pathlib.Path("runs/at-1/launches/observe/raw")
pathlib.Path("loaded").write_text(str(time.monotonic()))
time.sleep(float(sys.argv[1]))
pathlib.Path("trains").write_text(str(time.monotonic()))
(here / "rank-00000").mkdir()
time.sleep(0.6)
pathlib.Path("over").write_text(str(time.monotonic()))
"""


def moments(tmp_path, *jobs):
    return {
        (job.case.id, what): float((tmp_path / job.case.id / what).read_text())
        for job in jobs
        for what in ("loaded", "trains", "over")
    }


def test_a_job_that_is_loaded_waits_until_the_one_before_is_over(tmp_path):
    first, second = analysis(tmp_path, "first", 0.3), analysis(tmp_path, "second", 0.6)
    let_train([first, second])
    when = moments(tmp_path, first, second)
    assert when["second", "loaded"] < when["first", "over"] < when["second", "trains"]
    assert second.held_s > 0.3 and first.held_s == 0.0
    assert first.process.wait(5) == second.process.wait(5) == 0
    assert first.ran_s() < when["second", "trains"] - first.started_s  # not until somebody asked it


def test_what_a_compiler_found_out_about_the_machine_is_kept_and_nothing_of_the_job(tmp_path):
    work = tmp_path / "first"
    made = {
        "ab/cab.cpp": "void __avx_chk_kernel() {}", "ab/cab.so": "1",
        "cd/ccd.main.cpp": "void kernel() {}", "cd/ccd.main.so": "2",
        "cd/ccd.py": "x", "ef/cef.cpp": "void kernel() {}", "ef/cef.so": "3",
    }  # fmt: skip
    for name, text in made.items():
        path = work / "inductor" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    keep_checked(work)
    case = next(case for case in CASES if case.id == "healthy-dense-compiled")
    _, env = prepare(case, tmp_path / "second")
    found = Path(env["TORCHINDUCTOR_CACHE_DIR"])
    assert sorted(str(path.relative_to(found)) for path in found.glob("*/*")) == ["ab/cab.cpp", "ab/cab.so"]


def test_the_command_that_is_kept_leaves_out_where_and_which(monkeypatch):
    typed = "x --fix --only a,b --work=runs/a --results a.json --turns 1 --resume"
    monkeypatch.setattr(sys, "argv", typed.split())
    assert scores.command_line() == "python -m bench.faults --fix --turns 1"


def test_packages_are_looked_for_in_the_interpreter_of_the_job():
    assert installed(("json", "no_such_package"), sys.executable) == ["json"]
    assert installed((), "no such interpreter") == []
