"""Version windows are read from the table, not written into code."""

from __future__ import annotations

import pytest

from autotune.facts.versions import delta_rule_backward_breaks


@pytest.mark.parametrize(
    ("triton", "capability", "breaks"),
    [
        ("3.6.0", 9.0, True),
        ("3.4.0+git1", 9.0, True),
        ("3.3.1", 9.0, False),
        ("3.7.1", 9.0, False),
        ("3.6.0", 8.0, False),
        ("3.6.0", 10.0, False),
        ("unknown", 9.0, None),
    ],
)
def test_delta_rule_backward(triton: str, capability: float, breaks: bool | None) -> None:
    assert delta_rule_backward_breaks(triton, capability) is breaks
