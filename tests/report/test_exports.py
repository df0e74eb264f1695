"""Files for other tools: each is read back by that format's own reader."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from recorded_runs import finding

from autotune.cli.main import run
from autotune.records.findings import CodeSite, Diagnosis
from autotune.report.junit import junit
from autotune.report.markdown import markdown
from autotune.report.openmetrics import openmetrics
from autotune.report.sarif import sarif
from autotune.report.sources import Sources, sources_of
from autotune.store import read_record, write_record

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-schema-2.1.0.json").read_text())
NASTY = 'A "title" | with <b>markup</b> \\ and a\nbreak \x07'


def _with(folder: Path, **changes: object) -> Sources:
    diagnosis = read_record(folder / "diagnosis.json", Diagnosis)
    write_record(folder / "diagnosis.json", diagnosis.model_copy(update=changes))
    return sources_of(folder)


@pytest.mark.parametrize("kind", ["from_trace", "from_job"])
def test_sarif_is_valid(kind: str, request: pytest.FixtureRequest) -> None:
    log = json.loads(sarif(sources_of(request.getfixturevalue(kind))))
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    results = log["runs"][0]["results"]
    assert len(results) >= 8
    assert all(result["locations"] for result in results), "code scanning shows nothing without a place"


def test_sarif_points_at_the_users_line(from_job: Path, tmp_path: Path) -> None:
    run_ = json.loads(sarif(sources_of(from_job)))["runs"][0]
    first = run_["results"][0]
    place = first["locations"][0]["physicalLocation"]
    assert unquote(place["artifactLocation"]["uri"]) == "src/train it.py"
    base = run_["originalUriBaseIds"][place["artifactLocation"]["uriBaseId"]]["uri"]
    assert base == (tmp_path / "project").as_uri() + "/"
    assert place["region"]["startLine"] == 12 and place["region"]["endColumn"] == 40
    assert run_["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"]


def test_sarif_fingerprints_tell_findings_apart(from_job: Path) -> None:
    results = json.loads(sarif(sources_of(from_job)))["runs"][0]["results"]
    prints = [result["partialFingerprints"]["autotuneFinding/v1"] for result in results]
    assert len(set(prints)) == len(prints)


def test_sarif_of_nothing_found_is_valid(from_job: Path) -> None:
    log = json.loads(sarif(_with(from_job, findings=[])))
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    assert log["runs"][0]["results"] == []


def test_the_sarif_schema_can_refuse(from_job: Path) -> None:
    log = json.loads(sarif(sources_of(from_job)))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(SCHEMA).validate(log)


def test_openmetrics_is_read_back(from_job: Path) -> None:
    families = {f.name: f for f in text_string_to_metric_families(openmetrics(sources_of(from_job)))}
    assert families["autotune_step_seconds"].samples[0].value == pytest.approx(0.8125)
    assert families["autotune_projected_seconds"].samples[0].value == pytest.approx(26 * 3600)
    bounds = {s.labels["bound"]: s.value for s in families["autotune_speedup_ratio"].samples}
    assert bounds == {"estimate": 2.0, "low": 1.8, "high": 2.2}
    assert {s.labels["severity"] for s in families["autotune_findings"].samples} == {
        "info", "low", "medium", "high", "critical",
    }  # fmt: skip
    assert families["autotune_run"].type == "info"


def test_openmetrics_leaves_out_what_is_not_known(from_trace: Path) -> None:
    text = openmetrics(sources_of(from_trace))
    names = [f.name for f in text_string_to_metric_families(text)]
    assert "autotune_step_seconds" not in names and "autotune_speedup_ratio" not in names
    assert "autotune_finding_gain_upper_ratio" in names


def test_junit_counts_what_it_holds(from_job: Path) -> None:
    sources = sources_of(from_job)
    root = ET.fromstring(junit(sources, "high"))
    suite = root[0]
    assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
    assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("skipped", "")) == len(suite.findall("testcase/skipped"))
    high = [f for f in sources.diagnosis.findings if f.severity in ("high", "critical")]
    assert len(suite.findall("testcase/failure")) == len(high)
    every = len(sources.diagnosis.findings) + len(sources.diagnosis.passed)
    every += len(sources.diagnosis.undecided) + len(sources.diagnosis.not_applicable)
    assert int(suite.get("tests", "")) == every


def test_foreign_text_breaks_no_format(from_job: Path) -> None:
    sources = _with(from_job, findings=[finding(NASTY, NASTY, 1.5)], notes=[NASTY])
    assert ET.fromstring(junit(sources)).find(".//failure") is not None
    jsonschema.Draft4Validator(SCHEMA).validate(json.loads(sarif(sources)))
    list(text_string_to_metric_families(openmetrics(sources)))
    text = markdown(sources)
    row = next(line for line in text.splitlines() if line.startswith("| 1 |"))
    assert row.count(" | ") == 4 and "<b>" not in text


def test_foreign_text_links_nowhere_and_calls_nobody(from_job: Path) -> None:
    evil = "x ![i](http://e/i.png) [a](javascript:b) @someone\n# Big\n```\n---\n\x1b[31m\u202e"
    site = CodeSite(file="/tmp/a\x1b`|b.py", line=3, code=evil)
    bad = finding(evil, evil, 1.5).model_copy(update={"sites": [site]})
    sources = _with(from_job, findings=[bad], notes=[evil], verdict=evil)
    text = markdown(sources)
    assert "](" not in text and "@someone" not in text and "\n# Big" not in text and "\n---\n" not in text
    assert text.count("```") == text.count("```text") * 2
    assert all(c.isprintable() or c in "\n\u200b" for c in text)
    assert ET.fromstring(junit(sources)).find(".//failure") is not None
    message = json.loads(sarif(sources))["runs"][0]["results"][0]["message"]["text"]
    assert "\\[a](" in message and " [a](" not in message


def test_markdown_holds_the_sentence_the_table_and_the_proof(from_job: Path) -> None:
    sources = sources_of(from_job)
    text = markdown(sources, 2.5)
    assert sources.diagnosis.verdict in text
    assert "2.00x faster (interval 1.80 to 2.20)" in text
    assert "`src/train it.py:12`" in text
    assert "260.00 (4 GPUs at 2.5 an hour each)" in text
    assert text.count("<details>") == text.count("</details>") == len(sources.diagnosis.findings)


def test_the_verb_writes_files_and_answers_with_their_names(
    from_job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["report", str(from_job), "--json", "--fail-on", "high"]
    for kind in ("sarif", "markdown", "openmetrics", "junit"):
        arguments += [f"--{kind}", str(out / f"report.{kind}")]
    assert run(arguments) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [Path(name).name for name in answer["written"]] == [
        "report.sarif", "report.markdown", "report.openmetrics", "report.junit",
    ]  # fmt: skip
    assert all(Path(name).stat().st_size > 200 for name in answer["written"])
    assert run(["report", str(from_job), "--fail-on", "critical", "--quiet"]) == 0


def test_only_one_answer_fits_on_stdout(from_job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(from_job), "--sarif", "-"]) == 0
    json.loads(capsys.readouterr().out)
    assert run(["report", str(from_job), "--sarif", "-", "--junit", "-"]) == 2
    assert run(["report", str(from_job), "--sarif", "-", "--json"]) == 2


def test_a_missing_client_names_its_extra(
    from_job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    assert run(["report", str(from_job), "--mlflow"]) == 2
    shown = capsys.readouterr().err
    assert "autotune-training[mlflow]" in shown and "[extra-missing]" in shown


def test_facts_of_other_kinds_are_no_metrics(from_job: Path) -> None:
    from autotune.report.tracking import metrics

    sources = sources_of(from_job)
    found = metrics(sources)
    assert found["run.step_ms"] == 812.5 and found["autotune.speedup"] == 2.0
    assert "run.has_gpu" not in found and "device.name" not in found
