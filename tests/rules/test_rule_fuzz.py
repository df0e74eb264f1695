"""A thousand made-up rule files: each is read or refused in words, never with a traceback."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.data import data_dir
from autotune.facts.catalogue import catalogue
from autotune.rules.compile import read_rule
from autotune.rules.examples import run_example
from autotune.rules.lint import check_quality
from autotune.rules.pack import check_references

ORIGINALS = [p.read_text() for p in sorted(data_dir("rules").glob("[a-z]*/*.yaml"))]
PIECES = [
    "and",
    "or",
    "not",
    "(",
    ")",
    "[",
    "]",
    "==",
    ">",
    "0.5",
    '"a"',
    "none",
    "true",
    "is",
    "known",
    "in",
    "-",
    "/",
    "*",
    "min(",
    ",",
    "data.padding_frac",
    "run.has_gpu",
    "debug.flags_on",
    "model.type",
    "{{",
    "}}",
    "{%",
    "%}",
    "|",
    "#",
    "&a",
    "*a",
    "!",
]
words = st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), words)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.text(max_size=8),
                st.sampled_from(
                    ["all", "any", "steps", "action", "at", "surface", "facts", "name", "expect"]
                ),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
KEYS = [
    "id",
    "title",
    "severity",
    "confidence",
    "when",
    "evidence",
    "gain",
    "message",
    "caution",
    "fix",
    "parity",
    "after",
    "examples",
]


def check(text: str) -> None:
    reading = read_rule(text, "made-up.yaml", catalogue=catalogue())
    loaded, problems = reading.loaded, reading.problems
    if reading.rule is not None:  # also of what breaks the form of a rule
        problems = [*problems, *check_quality(reading.rule, reading.source, reading.broken)]
        check_references([reading], {"data/other"})
    assert (loaded is None) == any(problem.level == "error" for problem in reading.problems)
    for problem in problems:
        assert str(problem).startswith(f"made-up.yaml:{problem.line}:{problem.column}: ")
        assert problem.line >= 1
        assert problem.column >= 1
    if loaded is not None:
        for example in loaded.rule.examples:
            run_example(loaded, example, catalogue())


quiet = settings(max_examples=350, deadline=None, suppress_health_check=list(HealthCheck))


@quiet
@given(st.sampled_from(ORIGINALS), st.data())
def test_a_real_rule_with_a_changed_value(original: str, data: st.DataObject) -> None:
    rule = yaml.safe_load(original)
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = rule
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            inner = place[key]
            if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
                place = inner
                continue
            place[key] = data.draw(values)
            break
    check(yaml.safe_dump(rule, allow_unicode=True))


@quiet
@given(st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=6)), values, max_size=8))
def test_a_made_up_mapping(rule: dict[str, Any]) -> None:
    check(yaml.safe_dump(rule, allow_unicode=True))


@quiet
@given(st.sampled_from(ORIGINALS), st.data())
def test_a_real_file_with_damaged_text(original: str, data: st.DataObject) -> None:
    text = original
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 30))
        text = text[:at] + data.draw(st.one_of(st.text(max_size=6), words)) + text[at + gone :]
    check(text)
