"""Careless and hostile rule files: every fault told at once at its place; nothing that grows or runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.analyze.diagnose import RuleSources
from autotune.analyze.trace_set import undecided_here
from autotune.apply.shims import render_shim
from autotune.cli.main import run
from autotune.facts.catalogue import catalogue
from autotune.facts.fact import WATCH_IT
from autotune.facts.sheet import SheetBuilder
from autotune.records.facts import FactSheet, FactValue
from autotune.records.findings import Finding, Gain, Undecided
from autotune.rules.compile import read_rule
from autotune.rules.examples import run_examples
from autotune.rules.lint import lint
from autotune.rules.load import collect_rules, load_rules
from autotune.rules.match import match
from autotune.rules.patterns import pattern_fault
from autotune.rules.ranking import ranked
from autotune.rules.templates import TemplateFault, check, render

Pack = Callable[[dict[str, str]], Path]

GOOD = """\
id: data/one
title: One
severity: low
confidence: low
when:
  all:
    - data.padding_frac > 0.1
evidence: [data.padding_frac]
gain: {step_time_saved_frac: data.padding_frac, basis: b}
message: |
  Some text.

  {{ data.padding_frac | percent }} more
fix:
  - surface: call-site
    title: Do it
    steps:
      - action: set_keyword
        at: loader
        keywords: {num_workers: "2"}
parity: bitwise
examples:
  - {name: a, facts: {data.padding_frac: 0.5}, expect: match}
  - {name: b, facts: {data.padding_frac: 0.0}, expect: no-match}
  - {name: c, facts: {}, expect: unknown}
"""
STEP = '      - action: set_keyword\n        at: loader\n        keywords: {num_workers: "2"}\n'


def told(text: str) -> list[str]:
    return [str(problem).split("\n")[0] for problem in read_rule(text, "x", catalogue=catalogue()).problems]


def with_step(surface: str, step: str) -> str:
    changed = GOOD.replace("surface: call-site", f"surface: {surface}")
    return changed.replace(STEP, f"      - {{{step}}}\n")


def test_the_plain_rule_has_no_fault(pack: Pack) -> None:
    assert lint([pack({"data/one.yaml": GOOD})], catalogue=catalogue()).problems == []


def test_one_lint_tells_faults_of_every_kind(pack: Pack) -> None:
    text = GOOD.replace("title: One", "titel: One")  # the form
    text = text.replace("frac > 0.1", "frac > 0.1 and data.nothing").replace("| percent", "| pct")
    text = text.replace("at: loader", "at: loder").replace('"2"}', '"2 +"}').replace("name: b,", "name: a,")
    text = text.replace("padding_frac: 0.5", "padding_frac: much").replace("parity: bitwise\n", "")
    report = lint([pack({"data/two.yaml": text})], catalogue=catalogue())
    lines = "\n".join(str(problem).split("\n")[0] for problem in report.problems)
    for place, part in (
        ("1:5", "the file's place says 'data/two'"),
        ("1:1", "the key 'title' is missing"),
        ("2:1", "did you mean 'title'"),
        ("7:35", "unknown fact 'data.nothing'"),
        ("13:26", "unknown filter 'pct'"),
        ("14:1", "needs a parity tier"),
        ("19:13", "did you mean 'loader'"),
        ("20:33", "no Python expression"),
        ("22:42", "is a number, not 'much'"),
        ("23:12", "two examples are named 'a'"),
    ):
        assert any(f"two.yaml:{place}: " in line and part in line for line in lines.split("\n")), (
            part,
            lines,
        )


@pytest.mark.parametrize(
    ("old", "new", "place", "part"),
    [
        ("title: One", 'title: "a\\e[31mred"', "2:8", "U+001B"),
        ("title: One", 'title: "a\\u202Eb"', "2:8", "U+202E"),
        ("title: One", 'title: "a\\nb"', "2:8", "one line"),
        ("title: One", "title: ''", "2:8", "title is empty"),
        ("title: One", "title: !!binary aGVsbG8=", "2:8", "starts a tag"),
        ("data.padding_frac > 0.1", "1 < 2", "7:7", "reads no fact"),
        ("data.padding_frac > 0.1", "true", "7:7", "the same for every run"),
        ("data.padding_frac > 0.1", "data.padding_frac > 1e999", "7:27", "out of range"),
        ("- data.padding_frac > 0.1", '- attention.backend == "flsh"', "7:28", "did you mean 'flash'"),
        (
            "- data.padding_frac > 0.1",
            "- >\n      data.padding_frac > 0.1 and\n      data.no > 3",
            "9:7",
            "unknown",
        ),
        ("frac > 0.1", "frac > 0.1 and\n      data.no > 3", "8:7", "unknown fact 'data.no'"),
        ("- data.padding_frac > 0.1", "- 'data.padding_side == ''x'''", "7:29", "is not one of"),
        ("step_time_saved_frac: data.padding_frac", "step_time_saved_frac: run.step_ms", "9:30", "no unit"),
        ("step_time_saved_frac: data.padding_frac", "step_time_saved_frac: '7.5'", "9:30", "between 0 and 1"),
        ("step_time_saved_frac: data.padding_frac", "step_time_saved_frac: '-1'", "9:30", "between 0 and 1"),
        ("step_time_saved_frac: data.padding_frac", "ratio: '0'", "9:15", "from 1 to 50"),
        ("saved_frac: data.padding_frac", "saved_frac: data.padding_frac / 0", "9:30", "divides by zero"),
        ("padding_frac: 0.5", "padding_frac: .nan", "23:42", "is a number"),
        ("data.padding_frac: 0.5", "run.has_gpu: 1", "23:36", "true or false"),
        ("parity: bitwise", "references: ['javascript:alert(1)']\nparity: bitwise", "21:14", "web address"),
        ("  Some text.", "  Some text. {{ data.batch_size.real }}", "11:32", "has no parts"),
    ],
)
def test_a_fault_of_meaning_is_told_at_its_place(old: str, new: str, place: str, part: str) -> None:
    assert old in GOOD
    lines = told(GOOD.replace(old, new, 1))
    assert any(f"x:{place}: " in line and part in line for line in lines), "\n".join(lines)


@pytest.mark.parametrize(
    ("surface", "step", "part"),
    [
        ("shim", "action: use_shim, template: /etc/passwd, module: autotune_x", "shims/NAME.py.j2"),
        ("shim", "action: use_shim, template: shims/../../x.py.j2, module: autotune_x", "shims/NAME.py.j2"),
        ("shim", "action: use_shim, template: shims/plain_masks.py.j2, module: torch", "autotune_NAME"),
        ("script", "action: render, template: ../../etc/passwd", "folder of templates"),
        ("flag", 'action: set_flag, name: "--x --y", value: a', "no name of a flag"),
        ("flag", 'action: set_flag, name: --x, value: "a\\nb"', "one line"),
        ("env-var", "action: set_env, name: A=B, value: x", "no name of a variable"),
        ("package", "action: install, packages: [git+https://x/y]", "no package name"),
        ("package", "action: install, packages: ['--index-url=http://x']", "no package name"),
        ("call-site", "action: delete_statement, at: save, callees: ['(']", "no regular expression"),
        ("call-site", "action: delete_statement, at: save, callees: ['^(a+)+$']", "take for ever"),
        ("call-site", "action: set_count, names: '(', was: 1, value: 2", "no regular expression"),
        ("call-site", "action: set_keyword, at: loader", "needs keywords"),
        ("call-site", "action: set_keyword, at: loader, keywords: {a b: '1'}", "no name of an argument"),
        ("call-site", "action: wrap_call, at: loader, template: f()", "needs {original}"),
        ("call-site", "action: wrap_call, at: loader, template: 'f({orignal})'", "did you mean 'original'"),
        ("call-site", "action: insert_after, at: loader, template: 'if x'", "no line of Python"),
    ],
)
def test_a_step_that_cannot_be_made_is_told(surface: str, step: str, part: str) -> None:
    lines = told(with_step(surface, step))
    assert len(lines) == 1 and part in lines[0], lines


@pytest.mark.parametrize(
    "pattern",
    ["^(a+)+$", "^(.*a){25}$", r"^(\w+\.)*x$", "^.*a.*b.*c.*d$", "^(a|aa)+$", "^" + "a?" * 30 + "a" * 30],
)
def test_a_pattern_that_could_take_for_ever_is_refused(pattern: str) -> None:
    assert "take for ever" in pattern_fault(pattern)
    assert pattern_fault(r"(^|\.)(from_pretrained|from_config)$") == ""


@pytest.mark.parametrize(
    "text",
    [
        "{% set x = 'aaaaaaaa' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
        "{% set x = [0, 0] %}" + "{% set x = [x, x, x] %}" * 60 + "{{ x }}",
        "{{ 'aaaa' | replace('a', 'aaaaaaaa') }}",
        "{{ data | attr('_facts') }}",
        "{{ data['_facts'] }}",
        "{{ [data] | map(attribute='_facts') | list }}",
        "{{ [1, 2] | random }}",
        "{{ ''.__class__ }}",
    ],
)
def test_a_text_that_grows_or_looks_inside_is_refused(text: str) -> None:
    assert check(text, catalogue())[1]


@pytest.mark.parametrize(
    "text",
    [
        "{{ '%0999999999d' % 1 }}",
        "{{ 'ab' * 99999999 }}",
        "{{ 'abc' " + "| join('0123456789') " * 60 + "}}",
        "{% for a in 'x' * 99 %}{% endfor %}",
    ],
)
def test_a_text_that_grows_all_the_same_is_stopped(text: str) -> None:
    with pytest.raises(TemplateFault):
        render(text, {}, {}, {})


def test_what_a_loop_writes_is_bounded() -> None:
    text = "{% for a in debug.flags_on %}{% for b in debug.flags_on %}{{ b }}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateFault, match="at most"):
        render(text, {"debug.flags_on": ["word"] * 1000}, {"debug": None}, {})


def test_rules_in_a_circle_and_rules_named_twice_are_told(pack: Pack) -> None:
    two = GOOD.replace("data/one", "data/two").replace("> 0.1", "> 0.2")
    three = GOOD.replace("data/one", "data/three").replace("> 0.1", "> 0.3")
    folder = pack(
        {
            "data/one.yaml": GOOD + "after: [data/two]\nexplained_by: [data/three]\n",
            "data/two.yaml": two + "after: [data/three, data/three]\n",
            "data/three.yaml": three + "after: [data/one]\nexcludes: [data/two]\ntogether_with: [data/two]\n",
        }
    )
    lines = [problem.message for problem in collect_rules([folder], catalogue=catalogue())[1]]
    assert sum("after goes in a circle" in line for line in lines) == 3
    assert not any("explained_by" in line for line in lines)
    assert any("twice" in line for line in lines) and any("together_with names" in line for line in lines)


def test_odd_files_of_a_pack_are_told_and_hide_nothing(
    pack: Pack, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pack({"data/one.yaml": GOOD.replace("0.1", "nothing"), "data/a.yaml/b.txt": ""})
    (folder / "data" / "wide.yaml").write_bytes(GOOD.encode("utf-16"))
    (folder / "data" / "lost.yaml").symlink_to("nowhere")
    os.mkfifo(folder / "data" / "pipe.yaml")
    (folder / "data" / "zero.yaml").symlink_to("/dev/zero")
    (folder / "data" / "self").symlink_to(".")
    (folder / "data" / "mark.yaml").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("one", "mark").encode())
    (folder / "_tables").mkdir()
    (folder / "_tables" / "t.yaml").write_bytes(b"\xff")
    assert run(["rules", "lint", str(folder)]) == 2
    out = capsys.readouterr().out
    for part in (
        "wide.yaml:1:1: error: the file is not UTF-8",
        "lost.yaml:1:1: error: the file cannot be read",
    ):
        assert part in out
    assert out.count("error: this is no plain file") == 2
    assert "unknown fact 'nothing'" in out and "t.yaml:1:1: error: the file cannot" in out
    assert "mark.yaml" not in out.replace("the same condition", "")


def test_a_pack_brings_its_own_shim(pack: Pack) -> None:
    text = with_step("shim", "action: use_shim, template: shims/ours.py.j2, module: autotune_ours")
    folder = pack({"data/one.yaml": text})
    with pytest.raises(Exception, match=r"18:38: error: there is no template shims/ours.py.j2"):
        load_rules([folder], catalogue=catalogue())
    (folder / "templates" / "shims").mkdir(parents=True)
    (folder / "templates" / "shims" / "ours.py.j2").write_text("X = {{ limit }}\n", encoding="utf-8")
    finding = run_examples(load_rules([folder], catalogue=catalogue()).rules, catalogue())[0].finding
    assert isinstance(finding, Finding)
    template = str(finding.fixes[0].steps[0].arguments["template"])
    assert render_shim(template, {"limit": 3}) == "X = 3\n"
    with pytest.raises(Exception, match="cannot be rendered"):
        render_shim("{{ ''.__class__.__mro__[1].__subclasses__() }}\n", {})


def test_rules_are_checked_before_the_job_is_started(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = pack({"data/one.yaml": GOOD.replace("> 0.1", "> nothing")})
    for verb in ("analyze", "optimize"):
        assert run([verb, "--rules", str(folder), "--", "python", "-c", "open('started', 'w')"]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].endswith("one.yaml:7:27: error: unknown fact 'nothing'")
        assert lines[1:3] == ["     7 |     - data.padding_frac > nothing", " " * 7 + "|" + " " * 27 + "^"]
        assert lines[3] == "autotune: 1 error in rule files [rules-broken]"
    assert not (tmp_path / "started").exists() and not (tmp_path / "runs").exists()


def test_a_thousand_rules_that_wait_for_each_other_are_ordered_in_time() -> None:
    names = [f"data/r{number:03}" for number in range(300)]
    findings = [
        Finding(
            rule=name,
            title="t",
            severity="low",
            confidence="low",
            message="m",
            evidence=[],
            gain=Gain(),
            after=names[:index],
        )
        for index, name in enumerate(names)
    ]
    started = time.monotonic()
    order = [finding.rule for finding in ranked(list(reversed(findings)), {})]
    assert order == names and time.monotonic() - started < 10  # it was for ever


def test_of_a_watched_job_it_is_not_said_that_it_should_be_watched() -> None:
    asked = [Undecided(rule="a/b", title="t", missing=["model.layers"], decided_by=[WATCH_IT])]
    assert undecided_here(asked, None) == asked
    assert undecided_here(asked, None, watched=True)[0].decided_by == [
        "nothing: the watched job does not show it"
    ]
    assert WATCH_IT not in str(SheetBuilder().sheet(watched=True).get("model.layers").reason)


def test_an_exception_without_an_example_is_told(pack: Pack) -> None:
    text = GOOD.replace("evidence:", "  unless:\n    - run.out_of_memory\nevidence:")
    report = lint([pack({"data/one.yaml": text})], catalogue=catalogue())
    told = [(p.line, p.column, p.level) for p in report.problems if "shows this exception" in p.message]
    assert told == [(9, 7, "warning")]
    text += "  - {name: d, facts: {data.padding_frac: 0.5, run.out_of_memory: true}, expect: no-match}\n"
    assert lint([pack({"data/one.yaml": text})], catalogue=catalogue()).problems == []


def test_a_run_is_judged_by_the_rules_that_were_there_when_it_started(pack: Pack) -> None:
    folder = pack({"data/one.yaml": GOOD})
    sources = RuleSources(user_dirs=(folder,))
    sources.check()
    (folder / "data" / "one.yaml").write_text("nothing")
    assert any(loaded.id == "data/one" for loaded in sources.loaded.rules)


def test_a_text_that_cannot_be_filled_in_costs_no_diagnosis(pack: Pack) -> None:
    text = GOOD.replace("{{ data.padding_frac | percent }}", "{{ run.step_ms * 2 }}")
    rules = load_rules([pack({"data/one.yaml": text})], catalogue=catalogue()).rules
    assert "cannot be rendered" in run_examples(rules, catalogue())[0].fault
    facts = FactSheet(facts={"data.padding_frac": FactValue(state="value", value=0.5, source="test")})
    found = match(rules, facts, catalogue=catalogue()).findings
    assert [finding.rule for finding in found] == ["data/one"] and found[0].fixes == []
    assert "cannot be rendered" in found[0].message and "one.yaml" in found[0].message
