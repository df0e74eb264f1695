"""Matching: the answer of a rule, the order of findings, bounds, fixes and texts."""

from __future__ import annotations

from collections.abc import Callable

from rule_sheets import sheet_of

from autotune.facts.fact import Fact
from autotune.records.sites import Site, Span
from autotune.rules.compile import LoadedRule
from autotune.rules.match import match

Make = Callable[..., LoadedRule]
PADDING = ["data.padding_frac > 0.1"]


def test_three_answers_with_what_decides_and_how_far(small_rule: Make, catalogue: dict[str, Fact]) -> None:
    rules = [
        small_rule("data/a", all=PADDING),
        small_rule("data/b", all=["data.loader_wait_frac > 0.05"]),
        small_rule("data/c", all=["memory.peak_frac > 0.5"], any=["run.has_gpu"]),
    ]
    sheet = sheet_of({"data.padding_frac": 0.5, "data.loader_wait_frac": 0.01, "run.has_gpu": True})
    found = match(rules, sheet, catalogue=catalogue)
    assert [finding.rule for finding in found.findings] == ["data/a"]
    assert found.findings[0].evidence[0].text == "Share of batch tokens that are padding: 50 %"
    assert [(item.rule, item.missing) for item in found.undecided] == [("data/c", ["memory.peak_frac"])]
    assert found.undecided[0].decided_by == [catalogue["memory.peak_frac"].decided_by]
    assert found.passed[0].margin == "Share of the step spent waiting for the next batch: 1.0 %, limit 5.0 %"


def test_none_waits_for_its_facts_and_unless_does_not(small_rule: Make, catalogue: dict[str, Fact]) -> None:
    strict = small_rule("data/strict", all=PADDING, none=["model.is_encoder"])
    lenient = small_rule("data/lenient", all=PADDING, unless=["model.is_encoder"])
    unknown = match([strict, lenient], sheet_of({"data.padding_frac": 0.5}), catalogue=catalogue)
    assert [f.rule for f in unknown.findings] == ["data/lenient"]
    assert [u.rule for u in unknown.undecided] == ["data/strict"]
    known = sheet_of({"data.padding_frac": 0.5, "model.is_encoder": True})
    assert len(match([strict, lenient], known, catalogue=catalogue).passed) == 2
    inverse = small_rule("data/inverse", unless=["model.is_encoder"], all=["run.has_gpu"])
    blocked = match([inverse], sheet_of({"model.is_encoder": True}), catalogue=catalogue)
    assert len(blocked.passed) == 1  # blocked for certain, although run.has_gpu is not known


def test_severity_follows_the_bound(small_rule: Make, catalogue: dict[str, Fact]) -> None:
    more = """\
gain:
  - {step_time_saved_frac: data.padding_frac, basis: all of it}
  - {ratio: "1.5", basis: a guess}"""
    for share, severity in ((0.02, "low"), (0.1, "medium"), (0.4, "high")):
        rule = small_rule(all=["run.has_gpu"], more=more, severity="info" if share == 0.02 else "low")
        finding = match(
            [rule], sheet_of({"run.has_gpu": True, "data.padding_frac": share}), catalogue=catalogue
        ).findings[0]
        assert finding.severity == ("info" if share == 0.02 else severity)
        assert finding.gain.ratio_upper == round(1 / (1 - share), 4)
        assert finding.gain.basis == "all of it"
    second = match(
        [small_rule(all=["run.has_gpu"], more=more)], sheet_of({"run.has_gpu": True}), catalogue=catalogue
    )
    assert (second.findings[0].gain.ratio_upper, second.findings[0].gain.basis) == (1.5, "a guess")
    loose = more.replace("basis: all of it", "basis: all of it, loose: true")
    rule = small_rule(all=["run.has_gpu"], more=loose, severity="low")
    sheet = sheet_of({"run.has_gpu": True, "data.padding_frac": 0.9})
    assert match([rule], sheet, catalogue=catalogue).findings[0].severity == "low"


def gain(ratio: float) -> str:
    return f'gain: {{ratio: "{ratio}", basis: b}}'


def test_order_of_findings(small_rule: Make, catalogue: dict[str, Fact]) -> None:
    gpu = ["run.has_gpu"]
    rules = [
        small_rule(
            "data/symptom", all=gpu, more=gain(9) + "\nexplained_by: [data/absent, data/big, data/bigger]"
        ),
        small_rule("data/big", all=gpu, more=gain(2)),
        small_rule("data/bigger", all=gpu, more=gain(3)),
        small_rule("data/wrong", all=gpu, severity="critical"),
        small_rule(
            "data/late", all=gpu, more=gain(1.04) + "\ntogether_with: [data/lead]\nafter: [data/lead]"
        ),
        small_rule("data/lead", all=gpu, more=gain(5)),
        small_rule("data/unexplained", all=gpu, more=gain(1.01) + "\nexplained_by: [data/absent]"),
        small_rule("data/tiny", all=gpu, severity="low"),
        small_rule("data/not-by-tiny", all=gpu, more=gain(1.5) + "\nexplained_by: [data/tiny]"),
    ]
    found = match(rules, sheet_of({"run.has_gpu": True}), catalogue=catalogue).findings
    assert [finding.rule for finding in found] == [
        "data/wrong",
        "data/lead",
        "data/late",  # small, but it belongs to the strongest and is applied after it
        "data/bigger",
        "data/big",
        "data/not-by-tiny",
        "data/unexplained",
        "data/tiny",
        "data/symptom",
    ]
    assert found[-1].explained_by == "data/bigger", "of two causes the one that is worth more"
    assert all(finding.explained_by is None for finding in found[:-1])


FIXES = """\
fix:
  - surface: call-site
    title: At the loader
    applies_if: data.loader_workers == 0
    requires: ['packing.verdict == "isolated"']
    predicts: {data.loader_workers: 2}
    steps:
      - action: set_keyword
        at: loader
        callees: ['DataLoader$']
        keywords: {num_workers: '{{ data.cpu_cores_per_rank | int - 1 }}'}
  - surface: env-var
    title: Unset it
    steps:
      - {action: set_env, name: SLOW, value: null}
  - surface: flag
    title: Never
    applies_if: data.loader_workers == 7
    steps:
      - {action: set_flag, name: --x, value: y}
"""


def loader_site(editable: bool = True) -> Site:
    return Site(
        id="s1",
        kind="loader",
        callee="torch.utils.data.dataloader.DataLoader",
        file="/job/train.py",
        file_sha256="0",
        span=Span(line=7, byte_column=0, end_line=8, end_byte_column=3),
        line=7,
        function="main",
        editable=editable,
    )


def test_the_place_of_the_first_step_comes_first(small_rule: Make, catalogue: dict[str, Fact]) -> None:
    more = """\
fix:
  - surface: call-site
    title: At the loader, then at the model
    steps:
      - {action: delete_statement, at: loader}
      - {action: delete_statement, at: model_create}
"""
    loader = loader_site()
    model = loader.model_copy(update={"id": "s0", "kind": "model_create", "line": 3})
    rule = small_rule(all=["run.has_gpu"], more=more + "parity: bitwise")
    found = match([rule], sheet_of({"run.has_gpu": True}), catalogue=catalogue, sites=[model, loader])
    assert [site.line for site in found.findings[0].sites] == [7, 3]


def test_fixes_are_filtered_rendered_and_need_their_places(
    small_rule: Make, catalogue: dict[str, Fact]
) -> None:
    rule = small_rule(all=["run.has_gpu"], more=FIXES + "parity: bitwise")
    facts = {"run.has_gpu": True, "data.loader_workers": 0, "data.cpu_cores_per_rank": 4.0}
    found = match([rule], sheet_of(facts), catalogue=catalogue, sites=[loader_site()]).findings[0]
    assert [fix.title for fix in found.fixes] == ["At the loader", "Unset it"]
    step = found.fixes[0].steps[0]
    assert step.action == "set_keyword"
    assert step.arguments == {"at": "loader", "callees": ["DataLoader$"], "keywords": {"num_workers": "3"}}
    assert found.fixes[0].requires == ['packing.verdict == "isolated"']
    assert found.fixes[0].predicts == {"data.loader_workers": 2}
    assert found.fixes[1].steps[0].arguments == {"name": "SLOW", "value": None}
    assert [(site.file, site.line, site.end_line) for site in found.sites] == [("/job/train.py", 7, 8)]
    # a place in a package cannot be edited: the way becomes advice and stands behind the others
    found = match([rule], sheet_of(facts), catalogue=catalogue, sites=[loader_site(False)]).findings[0]
    assert [(fix.title, fix.applicability) for fix in found.fixes] == [
        ("Unset it", "safe"),
        ("At the loader", "advice"),
    ]
    assert found.fixes[1].steps == []


def test_an_absent_fact_in_a_text_reads_unknown(small_rule: Make, catalogue: dict[str, Fact]) -> None:
    template = "{{ run.step_ms | ms }}, {% if run.steady is known %}known{% else %}not known{% endif %}, "
    text = f"caution: '{template}{{{{ model.type }}}}'"
    rule = small_rule(all=["run.has_gpu"], more=text)
    found = match([rule], sheet_of({"run.has_gpu": True, "model.type": None}), catalogue=catalogue).findings[
        0
    ]
    assert found.caution == "unknown, not known, none"
