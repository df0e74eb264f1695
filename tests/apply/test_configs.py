"""One key of a configuration file changes; every other character stays."""

from __future__ import annotations

import pytest

from autotune.apply.configs import has_key, set_key
from autotune.apply.locate import EditRefused

YAML = """\
# the base model
model: x/y   # from the hub
training:
    bf16: false      # slow card
    lr: 1.0e-5
    betas: [0.9, 0.95]

data:
- path: a.jsonl
  weight: 1
- path: 'b.jsonl'
"""


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("model", "z", "model: x/y ", "model: z "),
        ("training.bf16", True, "bf16: false ", "bf16: true "),
        ("training.lr", "0.001", "lr: 1.0e-5", "lr: 0.001"),
        ("training.workers", "4", "[0.9, 0.95]\n", "[0.9, 0.95]\n    workers: 4\n"),
        ("packing", True, "- path: 'b.jsonl'\n", "- path: 'b.jsonl'\npacking: true\n"),
        ("attn", "no", "- path: 'b.jsonl'\n", "- path: 'b.jsonl'\nattn: \"no\"\n"),
        ("fsdp.version", 2, "- path: 'b.jsonl'\n", "- path: 'b.jsonl'\nfsdp: {\"version\": 2}\n"),
    ],
)
def test_yaml(key: str, value: str | int | bool, old: str, new: str) -> None:
    expected = YAML.replace(old, new)
    assert expected != YAML
    assert set_key(YAML, ".yaml", key, value) == expected
    assert set_key(expected, ".yaml", key, value) == expected
    assert has_key(expected, ".yaml", key)


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ('{"a": 1, "b": {"c": 1e-5}}', "b.c", '{"a": 1, "b": {"c": 2}}'),
        ('{\n  "a": 1,\n  "b": {}\n}\n', "a", '{\n  "a": 2,\n  "b": {}\n}\n'),
        ('{\n  "a": 1,\n  "b": {}\n}\n', "b.c", '{\n  "a": 1,\n  "b": {"c": 2}\n}\n'),
        ('{\n  "a": 1\n}\n', "z", '{\n  "a": 1,\n  "z": 2\n}\n'),
        ('{\n\t"a": 1,\n\t"b": 1\n}\n', "a", '{\n\t"a": 2,\n\t"b": 1\n}\n'),
        ('{"a": 1}', "b.c", '{"a": 1, "b": {"c": 2}}'),
    ],
)
def test_json(text: str, key: str, expected: str) -> None:
    assert set_key(text, ".json", key, 2) == expected
    assert set_key(expected, ".json", key, 2) == expected


def test_toml() -> None:
    text = '# run\nname = "x"\n\n[training]\nsteps = 10  # short\n\n[training.compile]\nenable = false\n'
    new = set_key(text, ".toml", "training.compile.enable", True)
    assert new == text.replace("enable = false", "enable = true")
    assert "steps = 20  # short" in set_key(text, ".toml", "training.steps", "20")
    assert set_key(new, ".toml", "training.compile.enable", True) == new


@pytest.mark.parametrize(
    ("text", "suffix", "key", "reason"),
    [
        ("a: [1, 2]\n", ".yaml", "a", "not a plain value"),
        ("a: 1\n", ".yaml", "a.b", "holds no keys"),
        ("a: |\n  text\n", ".yaml", "a", "not a plain value"),
        ("a: 1\n b: 2\n", ".yaml", "a", "cannot be read"),
        ("{", ".json", "a", "cannot be read"),
        ("[1, 2]", ".json", "a", "holds no keys"),
    ],
)
def test_refused(text: str, suffix: str, key: str, reason: str) -> None:
    with pytest.raises(EditRefused, match=reason):
        set_key(text, suffix, key, 3)
