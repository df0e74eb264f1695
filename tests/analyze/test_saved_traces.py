"""Different traces get different answers: cause first, symptoms explained, nothing invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import run

TRACES = Path(__file__).parent.parent / "traces"


def _diagnose(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    path = str(TRACES / f"{name}.json.gz")
    assert run(["analyze", "--json", "--quiet", "--runs-dir", str(tmp_path), "--trace", path]) == 0
    return json.loads(capsys.readouterr().out)


def _rules(answer: dict) -> list[str]:
    return [finding["rule"] for finding in answer["findings"]]


def test_fallback_trace_names_the_missing_kernels_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = _diagnose("h200_qwen35_2b4_padded_fallback_1step", tmp_path, capsys)
    rules = _rules(answer)
    assert rules[0] == "kernels/linear-attention-fallback"
    assert rules[1] == "kernels/causal-conv-fallback"
    symptom = next(f for f in answer["findings"] if f["rule"] == "launch/launch-bound")
    assert symptom["explained_by"] == "kernels/linear-attention-fallback"
    assert "attention/materialised-mask" in rules
    assert not {"sync/per-step-read", "data/loader-stall", "comm/exposed-collectives"} & set(rules)
    assert "flash-attn" not in answer["verdict"]


def test_packed_trace_names_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = _diagnose("h200_qwen35_2b4_packed_varlen_1step", tmp_path, capsys)
    rules = set(_rules(answer))
    assert not {r for r in rules if r.startswith("kernels/")}
    assert "launch/launch-bound" not in rules
    assert {"optimizer/not-fused", "memory/recompute-cost", "launch/gaps"} <= rules
    assert not {"sync/per-step-read", "batching/padding-waste", "attention/eager"} & rules


def test_exposed_all_reduce_trace_names_it_and_says_what_one_rank_cannot_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = _diagnose("mi300x_8rank_resnet_actckpt_rank0", tmp_path, capsys)
    rules = _rules(answer)
    assert rules[0] == "comm/exposed-collectives"
    assert "unknown without traces of all ranks" in answer["findings"][0]["message"]
    assert not [r for r in rules if r.startswith(("kernels/", "launch/", "batching/"))]


def test_hidden_communication_is_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = _diagnose("h200x2_qwen35_27b_packed_fsdp2_rank0_1step", tmp_path, capsys)
    rules = _rules(answer)
    assert "launch/launch-bound" not in rules
    loud = [f for f in answer["findings"] if f["severity"] in ("high", "critical")]
    assert "comm/exposed-collectives" not in [f["rule"] for f in loud]


def test_inference_trace_fires_no_training_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = _diagnose("h100_1gpu_qwen1.5-0.5b_infer_scrubbed", tmp_path, capsys)
    assert _rules(answer) == []
    assert "not a training job" in answer["verdict"]


def test_diagnosis_can_be_derived_again_from_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = _diagnose("h200_qwen35_2b4_packed_varlen_1step", tmp_path, capsys)
    assert run(["analyze", "--json", "--runs-dir", str(tmp_path), "--from", "latest"]) == 0
    assert json.loads(capsys.readouterr().out) == first


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("not json at all", ""),
        ('{"a": 1}', ""),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2, "tid"', ""),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(
    text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    assert run(["analyze", "--quiet", "--runs-dir", str(tmp_path / "runs"), "--trace", str(path)]) == 2
    shown = capsys.readouterr()
    assert len(shown.err.strip().splitlines()) == 1
    assert "broken.json" in shown.err and reason in shown.err


def _of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str], *names: str) -> tuple[int, dict[str, Any]]:
    paths = [str(TRACES / f"{name}.json.gz") for name in names]
    status = run(["analyze", "--trace", *paths, "--runs-dir", str(tmp_path), "--quiet", "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("train_128rank_sampled_rank0", "a100_2rank_ddp_nccl_args_rank0"), "are both of rank 0"),
        (("train_128rank_sampled_rank1", "a100_2rank_ddp_nccl_args_rank0"), "of a job of 2 ranks"),
    ],
)
def test_traces_of_different_jobs_are_not_the_ranks_of_one(
    names: tuple[str, str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = _of_two(tmp_path, capsys, *names)
    assert status == 2 and answer["error"]["code"] == "traces-mixed"
    assert why in answer["error"]["what"] and names[1] in answer["error"]["what"]


def test_records_missing_from_traces_are_told_with_the_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = _of_two(tmp_path, capsys, "train_128rank_sampled_rank0", "train_128rank_sampled_rank1")
    assert status == 0
    for name in ("train_128rank_sampled_rank0", "train_128rank_sampled_rank1"):
        assert any(name in note and "records are missing" in note for note in answer["notes"])


def test_nobody_is_sent_for_the_trace_just_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, answer = _of_two(tmp_path, capsys, "a100_2rank_ddp_nccl_args_rank0")
    ways = {item["rule"]: item["decided_by"] for item in answer["undecided"]}
    assert not any(way.startswith("give a trace") for found in ways.values() for way in found)
    assert ways["attention/math-backend"] == ["nothing: the trace does not show it"]


def test_a_finding_about_inference_says_that_nothing_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = _diagnose("b200_8rank_eager_rank0", tmp_path, capsys)
    assert "launch/launch-bound" in _rules(answer)
    assert answer["verdict"].startswith("This is not a training job")
