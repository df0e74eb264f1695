"""Loading: every error of every file at once, with its place, and no traceback for any text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.errors import Exit, InputError
from autotune.facts.fact import Fact
from autotune.rules.load import load_rules
from autotune.rules.problems import RuleFaults

GOOD = """\
id: data/one
title: One
severity: low
confidence: low
when:
  all:
    - data.padding_frac > 0.1
message: text
"""
FIX = "message: text\nfix:\n  - surface: call-site\n    title: t\n    steps:\n      - action: "
Pack = Callable[[dict[str, str]], Path]


def faults(folder: Path, catalogue: dict[str, Fact]) -> list[str]:
    with pytest.raises(RuleFaults) as caught:
        load_rules([folder], catalogue=catalogue, root=folder)
    assert caught.value.exit_code == Exit.BAD_INPUT
    return str(caught.value).split("\n")


def test_all_errors_of_all_files_with_place_line_and_caret(pack: Pack, catalogue: dict[str, Fact]) -> None:
    folder = pack(
        {
            "data/one.yaml": GOOD.replace("severity: low", "severity: lov").replace("> 0.1", "> 10%"),
            "data/two.yaml": GOOD.replace("data/one", "data/two").replace("title", "titel"),
            "data/three.yaml": GOOD.replace("data/one", "data/other"),
        }
    )
    lines = faults(folder, catalogue)
    assert "data/one.yaml:3:11: error: severity is 'lov' — did you mean 'low'?" in lines
    at = lines.index("data/one.yaml:7:29: error: write shares as fractions: 0.2, not 20%")
    assert lines[at + 1] == "     7 |     - data.padding_frac > 10%"
    assert lines[at + 2].index("^") == lines[at + 1].index("%")
    assert "data/two.yaml:2:1: error: unknown key 'titel' — did you mean 'title'?" in lines
    assert "data/two.yaml:1:1: error: the key 'title' is missing" in lines
    assert "data/three.yaml:1:5: error: the id is 'data/other', the file's place says 'data/three'" in lines
    assert lines[-1] == "5 errors in rule files"


@pytest.mark.parametrize(
    ("old", "new", "place", "part"),
    [
        ("title: One", "title: on", "2:8", "reads a bare 'on' as true or false"),
        ("- data.padding_frac > 0.1", "- data.padding_frac # > 0.1", "7:7", "'#' is a comment in YAML"),
        ("- data.padding_frac > 0.1", "- > 0.1", "7:", ""),
        ("- data.padding_frac > 0.1", "- >\n      0.1 < 3 <", "8:7", "starts with '>'"),
        ("- data.padding_frac > 0.1", "- data.padding_frac: 0.1", "7:7", "this is a mapping"),
        ("- data.padding_frac > 0.1", "- !x > 0.1", "7:12", "'!' at the start"),
        ("- data.padding_frac > 0.1", "- *x", "7:", "of its own in YAML"),
        ("  all:", "\tall:", "6:1", "tabs"),
        ("title: One", "title: a: b", "2:9", "put the text in quotes"),
        ("title: One", "title: One\ntitle: Two", "3:1", "stands here twice"),
        ("id: data/one", "id: Data One", "1:5", "expected category/kebab-name"),
        ("  all:\n    - data.padding_frac > 0.1", "  all: data.padding_frac > 0.1", "6:8", "must be a list"),
        ("  all:\n    - data.padding_frac > 0.1", "  none:\n    - run.steady", "5:1", "under all or any"),
        ("message: text", "message: '{{ data.nothing }}'", "8:14", "unknown fact 'data.nothing'"),
        ("message: text", "message: '{{ data.padding_frac | percnt }}'", "8:34", "did you mean 'percent'"),
        ("message: text", "message: '{% if data.padding_frac %}'", "8:10", "does not parse"),
        ("message: text", "message: '{{ [].__class__() }}'", "8:10", "no calls"),
        (
            "message: text",
            "message: text\nevidence: [data.paddin_frac]",
            "9:12",
            "did you mean 'data.padding_frac'",
        ),
        ("message: text", "message: text\nafter: [data/none]", "9:9", "does not exist"),
        ("message: text", "message: text\nafter: [data/one]", "9:9", "the rule itself"),
        ("message: text", "message: text\ngain: {basis: b}", "9:7", "exactly one of"),
        ("message: text", "message: text\ngain: {ratio: run.has_gpu, basis: b}", "9:15", "expected a number"),
        (
            "message: text",
            FIX + "set_keywords\n        at: loader",
            "13:17",
            "did you mean 'set_keyword'?",
        ),
        (
            "message: text",
            FIX + "set_keyword\n        at: loder",
            "14:13",
            "did you mean 'loader'?",
        ),
        (
            "message: text",
            FIX + "set_keyword\n        at: loader\n        keyword: {}",
            "15:9",
            "did you mean 'keywords'?",
        ),
        (
            "message: text",
            "message: text\nexamples:\n  - name: a\n    facts: {data.paddin_frac: 1}\n    expect: match",
            "11:13",
            "did you mean",
        ),
    ],
)
def test_one_error(old: str, new: str, place: str, part: str, pack: Pack, catalogue: dict[str, Fact]) -> None:
    assert old in GOOD
    lines = faults(pack({"data/one.yaml": GOOD.replace(old, new)}), catalogue)
    assert any(f"one.yaml:{place}" in line and part in line for line in lines), "\n".join(lines)


def test_same_id_twice_names_both_places(pack: Pack, catalogue: dict[str, Fact]) -> None:
    folder = pack({"data/one.yaml": GOOD, "data/one.yml": GOOD})
    lines = faults(folder, catalogue)
    assert lines[0] == "data/one.yml:1:5: error: the id 'data/one' is used twice, first in data/one.yaml:1:5"


def test_aliases_deep_nesting_and_odd_bytes(pack: Pack, catalogue: dict[str, Fact]) -> None:
    folder = pack({"data/one.yaml": GOOD, "data/bomb.yaml": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"})
    (folder / "data" / "bytes.yaml").write_bytes(b"id: \xff\xfe")
    (folder / "data" / "deep.yaml").write_text("[" * 400 + "]" * 400)
    (folder / "data" / "empty.yaml").write_text("# nothing\n")
    (folder / "data" / "list.yaml").write_text("- 1\n")
    text = "\n".join(faults(folder, catalogue))
    assert "anchors and aliases are not used" in text
    assert "bytes.yaml:1:1: error: the file is not UTF-8 text (byte 4)" in text
    assert "nested too deeply" in text
    assert "the file is empty" in text
    assert "a rule file holds keys" in text


def test_user_pack_replaces_and_disables(pack: Pack, catalogue: dict[str, Fact], tmp_path: Path) -> None:
    first = pack(
        {"data/one.yaml": GOOD, "data/two.yaml": GOOD.replace("data/one", "data/two").replace("0.1", "0.2")}
    )
    second = tmp_path / "mine"
    (second / "data").mkdir(parents=True)
    (second / "data" / "one.yaml").write_text(GOOD.replace("title: One", "title: Mine"))
    rules = load_rules([first, second], ["data/two"], catalogue=catalogue)
    assert [(loaded.id, loaded.rule.title) for loaded in rules.rules] == [("data/one", "Mine")]
    assert len(rules.notes) == 2
    assert "replaces" in rules.notes[0]
    assert "disabled" in rules.notes[1]
    with pytest.raises(InputError, match="did you mean 'data/two'"):
        load_rules([first], ["data/to"], catalogue=catalogue)


def test_a_folder_without_rules(tmp_path: Path, catalogue: dict[str, Fact]) -> None:
    with pytest.raises(InputError, match="holds no rule files"):
        load_rules([tmp_path], catalogue=catalogue)
    with pytest.raises(InputError, match="there is no rules folder"):
        load_rules([tmp_path / "gone"], catalogue=catalogue)
