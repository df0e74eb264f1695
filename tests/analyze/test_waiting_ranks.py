"""A 27B model on two GPUs, as watched and traced there: ranks bound by their launches wait for each other."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from autotune.analyze.verdict import verdict_sentence
from autotune.data import data_dir
from autotune.facts.catalogue import catalogue
from autotune.facts.everything import derive_facts
from autotune.records.facts import FactSheet
from autotune.records.observation import Observation
from autotune.records.trace import TraceSummary
from autotune.rules.load import load_rules
from autotune.rules.match import Matched, match

RECORDED = Path(__file__).resolve().parents[1] / "facts" / "recorded" / "h200_two_gpus.json.gz"
MEASURED = 2.91  # milliseconds a step of one pair of starts, unchanged over patched


@pytest.fixture(scope="module")
def facts() -> FactSheet:
    recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return derive_facts(
        Observation.model_validate(recorded["observation"]), TraceSummary.model_validate(recorded["traces"])
    )


@pytest.fixture(scope="module")
def matched(facts: FactSheet) -> Matched:
    rules = load_rules([data_dir("rules")], catalogue=catalogue()).rules
    return match(rules, facts, catalogue=catalogue())


def test_time_inside_collectives_is_told_from_transfers(facts: FactSheet) -> None:
    waiting, exposed = facts.value("comm.waiting_ms"), facts.value("comm.exposed_ms")
    assert isinstance(waiting, float) and isinstance(exposed, float)
    assert 0.9 * exposed < waiting <= exposed
    busy, working = facts.value("launch.gpu_busy_frac"), facts.value("launch.gpu_working_frac")
    assert isinstance(busy, float) and isinstance(working, float) and working < 0.6 < busy


def test_the_bound_holds_what_was_measured(matched: Matched) -> None:
    lead = matched.findings[0]
    assert lead.rule == "kernels/linear-attention-fallback"
    padding = next(f for f in matched.findings if f.rule == "batching/padding-waste")
    assert lead.gain.ratio_upper is not None and padding.gain.ratio_upper is not None
    assert MEASURED < lead.gain.ratio_upper * padding.gain.ratio_upper < 2 * MEASURED


def test_waiting_is_a_symptom_and_no_slow_communication(facts: FactSheet, matched: Matched) -> None:
    named = {finding.rule: finding for finding in matched.findings}
    assert "comm/exposed-collectives" not in named
    assert named["comm/ranks-wait"].explained_by == "kernels/linear-attention-fallback"
    sentence = verdict_sentence(facts, matched.findings, [], [])
    assert "% of each step and up to 37 % for other ranks" in sentence
