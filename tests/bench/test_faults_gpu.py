"""The bench on a GPU, as far as a machine without one shows it: sizes, twins, limits, resuming, the table."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.faults import report, scores  # noqa: E402
from bench.faults.analyse import CUT_OFF, Analysis, Answer, Pace, Said, Setting, typed  # noqa: E402
from bench.faults.cases import REFERENCES, Case, command, load_cases  # noqa: E402
from bench.faults.gpu import beside, cannot_run, check_kernels, plan, sized, twin_of  # noqa: E402
from bench.faults.plain import to_run, together  # noqa: E402
from bench.faults.turns import in_turn, let_train, pairs  # noqa: E402

CASES = load_cases()
VISIT = plan(CASES)
ON_A_GPU = [case for case in CASES if case.needs == "gpu"]
OBSERVED = ROOT / "tests/notebook/recorded/at-20261130-000444-train/launches/observe/observation.json"


@pytest.mark.parametrize("case", ON_A_GPU, ids=lambda case: case.id)
def test_a_fault_of_a_gpu_has_a_size_that_its_reference_takes(case):
    assert case.gpu_args
    source = (REFERENCES / case.script).read_text()
    for tiny in (False, True):
        given = [word for word in shlex.split(sized(case, tiny).args) if word.startswith("--")]
        assert all(f'"{option}"' in source for option in given)
        assert sorted(given) == sorted(set(given))


def test_sizes_of_a_cpu_stay_as_they_are_and_a_rehearsal_is_tiny():
    case = next(case for case in CASES if case.id == "out-of-memory")
    assert "--width 2048" in case.args and "--low-memory" not in case.args
    assert sized(case, tiny=True).args == (
        "--low-memory --width 64 --layers 2 --length 64 --batch-size 2 --vocabulary 4096"
    )


def test_every_fault_of_a_gpu_has_a_healthy_twin_of_its_size():
    order = [case.id for case in VISIT.cases]
    by_id = {case.id: case for case in VISIT.cases}
    assert len(order) == len(set(order)) and {case.id for case in ON_A_GPU} <= set(order)
    for case in VISIT.sick:
        twin = by_id[VISIT.twins[case.id]]
        assert twin.healthy and not twin.edits and not twin.env and not twin.files and not twin.absent
        assert (twin.family, twin.args, twin.processes, twin.gpus) == (
            case.family,
            case.args,
            case.processes,
            case.gpus,
        )
        assert twin.kernels == (case.family == "hybrid")
        if case.id not in ("missing-kernels", "out-of-memory"):
            assert order.index(twin.id) < order.index(case.id)
    assert len(set(VISIT.twins.values())) < len(VISIT.sick)  # faults of one size share theirs
    assert VISIT.twins["deterministic"] == VISIT.twins["empty-cache-per-step"]


def test_the_fused_kernels_go_to_the_job_that_is_meant_to_have_them(tmp_path):
    by_id = {case.id: case for case in VISIT.cases}
    setting = Setting(steps=8, python="py", kernels=tmp_path)
    assert f"PYTHONPATH={tmp_path}" in " ".join(typed(by_id["shape-churn"], tmp_path, setting))
    assert f"PYTHONPATH={tmp_path}" in " ".join(typed(by_id["twin-missing-kernels"], tmp_path, setting))
    assert "PYTHONPATH" not in " ".join(typed(by_id["missing-kernels"], tmp_path, setting))
    assert not next(case for case in CASES if case.id == "hybrid-detect-anomaly").kernels


def test_a_folder_without_the_kernels_is_refused(tmp_path):
    (tmp_path / "fla").mkdir()
    (tmp_path / "fla" / "__init__.py").touch()
    with pytest.raises(SystemExit, match="finds no causal_conv1d"):
        check_kernels(tmp_path, sys.executable)
    (tmp_path / "causal_conv1d").mkdir()
    (tmp_path / "causal_conv1d" / "__init__.py").touch()
    check_kernels(tmp_path, sys.executable)


def test_what_a_machine_cannot_show_is_not_run_and_no_failure(tmp_path):
    by_id = {case.id: case for case in VISIT.cases}
    why = {name: cannot_run(by_id[name], 1, None, sys.executable) for name in by_id}
    assert why["fp32-collectives"] == why["twin-fp32-collectives"] == "needs two GPUs"
    assert why["accelerate-sync-every-micro-batch"] == "needs two GPUs"
    assert "--kernels" in why["shape-churn"] and "--kernels" in why["twin-missing-kernels"]
    assert why["offload-needless"] == why["accelerate-sync-in-fstring"] == why["missing-kernels"] == ""
    assert cannot_run(by_id["fp32-collectives"], 2, None, sys.executable) == ""
    taken = replace(by_id["missing-kernels"], absent=("json",))
    assert cannot_run(taken, 1, tmp_path, sys.executable) == "needs an environment without json"


def test_a_sharded_job_alone_still_joins_a_group():
    offload = next(case for case in VISIT.cases if case.id == "offload-needless")
    assert offload.processes == 1
    assert command(offload, "py")[:6] == [
        "py",
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "1",
        "fsdp2.py",
    ]


def test_the_pace_is_the_timing_window_between_two_synchronised_clocks(tmp_path):
    rank = json.loads(OBSERVED.read_text())["ranks"][0]
    begin, end = rank["windows"][:2]
    pace = Pace.read(OBSERVED)
    assert pace.steps == end["begins_after"] - begin["begins_after"] == 8
    assert pace.ms * pace.steps == pytest.approx(1000 * (end["synced_s"] - begin["synced_s"]), abs=0.01)
    assert pace.tokens == 1024.0
    data = json.loads(OBSERVED.read_text())
    data["ranks"][0]["windows"] = [begin]  # the job ended inside it
    (tmp_path / "o.json").write_text(json.dumps(data))
    assert Pace.read(tmp_path / "o.json") is None


def test_a_slowdown_is_of_equal_work_where_tokens_are_known():
    half = Pace(ms=150.0, steps=8, median_ms=150.0, tokens=500.0)
    whole = Pace(ms=200.0, steps=8, median_ms=200.0, tokens=1000.0)
    assert half.against(whole) == pytest.approx(1.5)
    assert replace(half, tokens=None).against(whole) == pytest.approx(0.75)


def test_an_answer_keeps_its_pace(tmp_path):
    answer = Answer("x", 1.0, 0, pace=Pace(150.0, 8, 149.0, 512.0))
    scores.write(tmp_path / "a.json", [answer], scores.heading(False, "abc", 1.0))
    assert scores.read(tmp_path / "a.json")[1] == [answer]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def said(rule, severity="high"):
    return Said(rule, rule, severity, None, ())


def test_what_the_twin_gets_too_is_told_apart_and_counts_all_the_same():
    causes = scores.load_causes()
    pace = Pace(100.0, 8, 100.0, 512.0)
    answers = [
        Answer("twin-empty-cache-per-step", 9.0, 0, findings=(said("launch/launch-bound"),), pace=pace),
        Answer(
            "empty-cache-per-step",
            9.0,
            0,
            findings=(said("launch/launch-bound"), said("sync/empty-cache"), said("data/loader-stall")),
            pace=replace(pace, ms=130.0),
        ),
        Answer(
            "deterministic",
            9.0,
            0,
            findings=(said("data/loader-stall"), said("debug/flags-left-on"), said("x/y", "info")),
        ),
        Answer("full-logits", 9.0, 0, findings=(said("loss/full-logits"),)),
    ]
    rows = {row.mark.case.id: row for row in beside(VISIT, answers, causes)}
    empty, fixed, alone = (rows[n] for n in ("empty-cache-per-step", "deterministic", "full-logits"))
    assert (empty.mark.first, empty.first_of_own) == (False, True)
    assert (empty.shared, empty.own) == (("launch/launch-bound",), ("data/loader-stall",))
    assert empty.slowdown == pytest.approx(1.3) and report.slowdown(empty) == "1.30x (8/8)"
    assert (fixed.first_of_own, fixed.own, fixed.slowdown) == (False, ("data/loader-stall",), None)
    assert (alone.twin, alone.shared, report.slowdown(alone)) == (None, (), "-")
    assert len(empty.mark.false_alarms) == 2  # the strict count
    lines = report.beside_summary(list(rows.values()), {"shape-churn": "needs two GPUs"})
    assert "2 of 3 sick jobs; 0 named first, 1 first of what the twin does not get" in lines[0]
    assert "1 also of the twin, 2 of the sick job only" in lines[1]
    assert lines[2] == "not run: shape-churn (needs two GPUs)"


def test_what_costs_nothing_is_listed_and_left_out_of_a_second_count():
    pace = Pace(100.0, 8, 100.0, 512.0)
    twins = [Answer(VISIT.twins[name], 9.0, 0, pace=pace) for name in ("sync-in-fstring", "out-of-memory")]
    told = (said("launch/gaps"),)
    answers = [
        *twins,
        Answer("sync-in-fstring", 9.0, 0, findings=told, pace=replace(pace, ms=101.0)),
        Answer(
            "item-on-grad-norm", 9.0, 0, findings=(said("sync/per-step-read"),), pace=replace(pace, ms=103.0)
        ),
        # a fault of memory need not be slow
        Answer("out-of-memory", 9.0, 0, findings=told, pace=replace(pace, ms=90.0)),
    ]
    rows = beside(VISIT, answers, scores.load_causes())
    assert [row.mark.case.id for row in rows if row.costs_nothing] == ["sync-in-fstring"]
    lines = report.beside_summary(rows, {})
    assert lines[2] == "cost nothing here (less than 1.02x): sync-in-fstring"
    assert lines[3].startswith("without those: 1 of 2 named, 1 named first, 1 first of what")


def test_a_twin_that_failed_compares_with_nothing():
    answers = [
        Answer("twin-full-logits", 9.0, -1, failure="no answer within 100 s"),
        Answer("full-logits", 9.0, 0, findings=(said("loss/full-logits"),)),
    ]
    (row,) = beside(VISIT, answers, scores.load_causes())
    assert row.twin is None and row.slowdown is None


def test_going_on_leaves_out_what_was_answered_and_tries_failures_last():
    cases = [Case(name, "dense", name) for name in "abcd"]
    answers = [
        Answer("a", 1.0, 0, findings=(said("x/y"),)),
        Answer("b", 1.0, -1, failure="no answer within 100 s"),
        Answer("c", 1.0, 0),  # nothing was found: an answer
    ]
    assert [case.id for case in to_run(cases, answers)] == ["d", "b"]


def test_results_of_several_visits_claim_no_single_time():
    old = {"when": "2026-11-30", "machine": "m", "command": "c", "commit": "a", "wall_s": 470.0}
    new = {
        "when": "2026-12-01",
        "machine": "m",
        "command": "c",
        "commit": "b",
        "wall_s": 300.0,
        "others_cores": 0.1,
    }
    both = together(old, new, {"shape-churn": "needs --kernels"})
    assert both["wall_s"] is None and both["commit"] == "a; b" and both["machine"] == "m"
    assert both["not_run"] == {"shape-churn": "needs --kernels"}
    assert together({}, new, {}) == new


def hanging(tmp_path, name, limit_s, ends_at_s=math.inf):
    """A process that ignores being asked to end, in the place of autotune."""
    made = object.__new__(Analysis)
    made.case, made.work, made.held_s = Case(name, "dense", name), tmp_path / name, 0.0
    made._held_at_s, made._ended_s, made._held = None, None, []
    made.limit_s, made.ends_at_s, made.started_s = limit_s, ends_at_s, time.monotonic()
    made.work.mkdir()
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    made.process = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
    made.process.stdout.readline()
    made.process.stdout.close()
    return made


def test_a_job_that_hangs_is_ended_before_the_next_one_trains(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.faults.analyse._END_S", 0.2)
    first, second = hanging(tmp_path, "first", 0.5), hanging(tmp_path, "second", 1.0)
    let_train([first, second])
    assert first.process.poll() == second.process.poll() == -9
    assert [one.answer().failure for one in (first, second)] == [
        "no answer within 0 s",
        "no answer within 1 s",
    ]
    assert second.held_s == 0.0 or second.ran_s() < 1.5


def test_the_end_of_a_visit_cuts_a_job_off(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.faults.analyse._END_S", 0.2)
    job = hanging(tmp_path, "late", 60.0, time.monotonic() + 0.3)
    assert job.answer().failure == CUT_OFF and job.process.poll() == -9


def test_nothing_starts_when_the_visit_is_nearly_over(tmp_path):
    setting = Setting(steps=5, ends_at_s=time.monotonic() + 5.0)
    assert list(in_turn([Case("healthy-x", "dense", "x")], tmp_path, setting)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_fills_the_memory_is_alone():
    cases = [Case("a", "dense", "a"), Case("b", "dense", "b", sick="memory"), Case("c", "dense", "c")]
    assert [[case.id for case in pair] for pair in pairs(cases)] == [["a"], ["b"], ["c"]]


def test_without_a_gpu_the_run_is_refused_and_the_list_is_not(tmp_path):
    line = [sys.executable, "-m", "bench.faults", "--gpu", "--gpu-only", "--only", "deterministic"]
    env = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "nvidia-smi lists no GPU here" in done.stderr
    listed = subprocess.run([*line, "--list"], cwd=ROOT, env=env, capture_output=True, text=True).stdout
    assert re.findall(r"^\S+", listed, re.M) == ["twin-empty-cache-per-step", "deterministic"]


def test_a_twin_of_a_rehearsal_has_the_same_name():
    tiny = plan(CASES, tiny=True)
    assert [case.id for case in tiny.cases] == [case.id for case in VISIT.cases]
    assert tiny.twins == VISIT.twins
    assert twin_of(sized(ON_A_GPU[0]), False).id == f"twin-{ON_A_GPU[0].id}"
