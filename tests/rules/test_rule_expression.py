"""Conditions: grammar, types, units, and three-valued evaluation."""

from __future__ import annotations

import itertools

import pytest

from autotune.facts.fact import Fact
from autotune.rules.expression import Facts
from autotune.rules.parse import parse_condition, parse_number
from autotune.rules.truth import NOT_APPLICABLE, Truth


def truth(text: str, facts: Facts, catalogue: dict[str, Fact]) -> Truth:
    node, flaws = parse_condition(text, catalogue)
    assert node is not None, flaws
    return node.truth(facts)


def errors(text: str, catalogue: dict[str, Fact]) -> list[tuple[int, str]]:
    node, flaws = parse_condition(text, catalogue)
    found = [(flaw.offset, flaw.message) for flaw in flaws if flaw.level == "error"]
    assert (node is None) == bool(found)
    return found


A, B = "run.has_gpu", "run.steady"


@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_kleene_logic(left: Truth, right: Truth, catalogue: dict[str, Fact]) -> None:
    facts = {name: value for name, value in ((A, left), (B, right)) if value is not None}
    both = truth(f"{A} and {B}", facts, catalogue)
    either = truth(f"{A} or {B}", facts, catalogue)
    assert both == (False if False in (left, right) else None if None in (left, right) else True)
    assert either == (True if True in (left, right) else None if None in (left, right) else False)
    assert truth(f"not ({A} and {B})", facts, catalogue) == (None if both is None else not both)


@pytest.mark.parametrize(
    ("text", "facts", "expected"),
    [
        ("data.padding_frac >= 0.1", {"data.padding_frac": 0.1}, True),
        ("data.padding_frac >= 0.1", {}, None),
        ("data.padding_frac >= 0.1", {"data.padding_frac": NOT_APPLICABLE}, False),
        ("data.padding_frac != 0.1", {"data.padding_frac": NOT_APPLICABLE}, False),
        ("data.padding_frac == none", {"data.padding_frac": NOT_APPLICABLE}, True),
        ("data.padding_frac == none", {"data.padding_frac": 0.0}, False),
        ("data.padding_frac != none", {"data.padding_frac": 0.0}, True),
        ("data.padding_frac == none", {}, None),
        ("data.padding_frac is known", {}, False),
        ("data.padding_frac is known", {"data.padding_frac": NOT_APPLICABLE}, True),
        ("data.padding_frac is not known", {}, True),
        ("0.1 < data.padding_frac < 0.3", {"data.padding_frac": 0.2}, True),
        ("0.1 < data.padding_frac < 0.3", {"data.padding_frac": 0.3}, False),
        ('kernels.causal_conv in ["fast", "fallback"]', {"kernels.causal_conv": "fast"}, True),
        ('kernels.causal_conv not in ["fast"]', {"kernels.causal_conv": "fallback"}, True),
        ('kernels.causal_conv not in ["fast"]', {"kernels.causal_conv": NOT_APPLICABLE}, False),
        ('"TORCH_LOGS" in debug.flags_on', {"debug.flags_on": ["TORCH_LOGS"]}, True),
        ("debug.flags_on != []", {"debug.flags_on": []}, False),
        ("run.has_gpu == false", {"run.has_gpu": False}, True),
        ("run.has_gpu", {"run.has_gpu": NOT_APPLICABLE}, False),
        ("not run.has_gpu", {"run.has_gpu": NOT_APPLICABLE}, True),
        # arithmetic without a result does not apply, so its comparison is false
        (
            "memory.static_gib / memory.device_gib > 0.5",
            {"memory.static_gib": 1.0, "memory.device_gib": 0.0},
            False,
        ),
        ("memory.static_gib / memory.device_gib > 0.5", {"memory.static_gib": 1.0}, None),
        (
            "max(optimizer.step_frac, optimizer.gpu_frac) > 0.1",
            {"optimizer.step_frac": 0.2, "optimizer.gpu_frac": 0.0},
            True,
        ),
        ("-run.step_ms < 0", {"run.step_ms": 5.0}, True),
    ],
)
def test_evaluation(text: str, facts: Facts, expected: Truth, catalogue: dict[str, Fact]) -> None:
    assert truth(text, facts, catalogue) is expected


@pytest.mark.parametrize(
    ("text", "offset", "part"),
    [
        ("data.paddin_frac > 0.1", 0, "did you mean 'data.padding_frac'?"),
        ("batching.padding_frac > 0.1", 0, "did you mean 'data.padding_frac'?"),
        ("run.has_gpu and data.paddin_frac > 0.1", 16, "unknown fact"),
        ('data.padding_frac > "0.1"', 0, "never equal"),
        ("data.padding_frac", 0, "compare it"),
        ("data.padding_frac and run.has_gpu", 0, "compare it"),
        ("run.step_ms > run.startup_s", 0, "units differ: ms and s"),
        ("run.step_ms + memory.static_gib > 3", 0, "units differ"),
        ('kernels.causal_conv == "slow"', 23, "not one of fast, fallback"),
        ('kernels.causal_conv == "fallbak"', 23, "did you mean 'fallback'?"),
        ('"flash" in attention.backend', 11, "substrings are not searched"),
        ("run.has_gpu > 1", 0, "compared with"),
        ("len(debug.flags_on) > 1", 0, "no calls"),
        ("debug.flags_on[0] == 1", 0, "an index cannot be used"),
        ("data.padding_frac = 0.1", 18, "write '=='"),
        ("data.padding_frac > 10%", 22, "as fractions"),
        ("run.has_gpu && run.steady", 12, "write 'and'"),
        ("data.padding_frac > 0.1 if run.has_gpu else false", 0, "if ... else"),
        ("run.step_ms ** 2 > 4", 0, "only + - * /"),
        ("", 0, "empty"),
        ("(" * 300 + "run.has_gpu" + ")" * 200, 0, ""),
        ("__import__('os')", 0, "no calls"),
        ("run.__class__ == 1", 0, "unknown fact"),
        ("data.padding_frac < none", 0, "none can only"),
        ("data.padding_frac is small", 21, "'known' and 'none'"),
        ("'a\\x41' == attention.backend", 2, "backslash"),
    ],
)
def test_errors_name_the_place(text: str, offset: int, part: str, catalogue: dict[str, Fact]) -> None:
    found = errors(text, catalogue)
    assert found, text
    assert any(part in message for _, message in found), found
    if part:
        assert found[0][0] == offset, found


def test_a_share_above_one_is_a_warning(catalogue: dict[str, Fact]) -> None:
    node, flaws = parse_condition("data.padding_frac > 20", catalogue)
    assert node is not None
    assert [flaw.level for flaw in flaws] == ["warning"]
    assert "between 0 and 1" in flaws[0].message


def test_units_travel_through_arithmetic(catalogue: dict[str, Fact]) -> None:
    for good in (
        "run.step_ms * data.padding_frac > run.first_step_ms",
        "memory.static_gib / memory.device_gib < 0.5",
    ):
        assert parse_condition(good, catalogue)[1] == [], good
    assert parse_number("1 / (1 - data.padding_frac)", catalogue)[1] == []
    assert parse_number("run.has_gpu", catalogue)[0] is None


def test_offsets_count_characters_not_bytes(catalogue: dict[str, Fact]) -> None:
    text = 'attention.backend == "é模型" and data.paddin_frac > 1'
    assert errors(text, catalogue)[-1][0] == text.index("data.paddin")


def test_never_raises_on_odd_values(catalogue: dict[str, Fact]) -> None:
    node, _ = parse_condition("data.padding_frac / run.step_ms * run.step_ms >= 0.1", catalogue)
    assert node is not None
    odd: list[object] = [0, -1, 1e308, True, "text", ["a"], NOT_APPLICABLE]
    for left, right in itertools.product(odd, odd):
        assert node.truth({"data.padding_frac": left, "run.step_ms": right}) in (True, False, None)  # type: ignore[dict-item]
