"""Sources that are hard to edit: encodings, marks, long lines, new syntax, links, rights. Each edit is made
through a plan, written, run or compiled, and taken back; each refusal leaves everything as it was."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import libcst
import pytest
from apply_sites import calls_named, site_of
from findings_made import diagnosis, finding, fix, observation, step

from autotune.apply.deliver import deliver, revert
from autotune.apply.edit import Edit, edit_source
from autotune.apply.job import materialise
from autotune.apply.plan import build_plan
from autotune.records.plan import Plan

MARK = b"\xef\xbb\xbf"
HEAD = "def load(data, workers=0):\n    return [data, workers]\n\n"
SET = {"keywords": {"workers": "4"}}


def planned(
    script: Path, text: str, command: list[str] | None = None, cwd: Path | None = None
) -> tuple[Plan, Any]:
    """A plan that sets workers=4 at the recorded call of `load` in a script of this text."""
    site = site_of(
        text.removeprefix("\ufeff"), calls_named(text.removeprefix("\ufeff"), "load")[0],
        kind="loader", callee="train.load", file=str(script), parameters=("data", "workers"),
    )  # fmt: skip
    site = site.model_copy(update={"file_sha256": hashlib.sha256(script.read_bytes()).hexdigest()})
    seen = observation(command or [sys.executable, str(script)], cwd or script.parent, [site])
    how = finding("test/rule", fix(step("set_keyword", at="loader", **SET)))
    return build_plan(diagnosis(how), seen), seen


def arm(plan: Plan, seen: Any, folder: Path) -> Any:
    assert [g.reason for g in plan.groups] == [""], plan
    run = folder / "runs" / "at-1"
    run.mkdir(parents=True)
    return materialise(plan.groups, seen, run=run, label="patched"), run


# name -> (bytes before, bytes that must be in the result)
EDITED = {
    "latin-1 cookie": (
        ("# -*- coding: latin-1 -*-\n" + HEAD + "print(load('café ü', 0))\n").encode("latin-1"),
        "load('café ü', 4)".encode("latin-1"),
    ),
    "cp1252 cookie in the second line": (
        ("#!/bin/python\n# vim: set fileencoding=cp1252 :\n" + HEAD + "print(load('€'))\n").encode("cp1252"),
        "load('€', workers=4)".encode("cp1252"),
    ),
    "euc-jp cookie, text before the call": (
        ("# coding: euc-jp\n" + HEAD + "x = '日本語'; print(load(x, 0))\n").encode("euc-jp"),
        "'日本語'; print(load(x, 4))".encode("euc-jp"),
    ),
    "utf-8 with a mark": (MARK + (HEAD + "print(load('é', 0))\n").encode(), "load('é', 4)".encode()),
    "mark, carriage returns and tabs": (
        MARK + (HEAD + "if True:\n\tprint(load(1,\n\t\t0))\n").replace("\n", "\r\n").encode(),
        b"print(load(1,\r\n\t\t4))\r\n",
    ),
    "very long line": (
        (HEAD + "x = [" + ", ".join(map(str, range(3000))) + "]; print(len(x), load(1, 0))\n").encode(),
        b"load(1, 4))\n",
    ),
    "no last line end": ((HEAD + "print(load(1, 0))").encode(), b"print(load(1, 4))"),
    "line separators of other alphabets in strings": (
        (HEAD + "a = 'x\u2028y\x85z'; b = 'é\u2029'; print(load(a, 0))\n").encode(), b"; print(load(a, 4))\n",
    ),
    "page breaks between functions": (
        (HEAD + "\x0c\n\x0c\nprint(load(1, 0))\n").encode(), b"\x0c\n\x0c\nprint(load(1, 4))\n",
    ),
    "backslash continuation": (
        (HEAD + "y = \\\n    load(1, \\\n         0)\n").encode(), b"load(1, \\\n         4)",
    ),
    "match statement": (
        (HEAD + "match 1:\n    case 1 if load(1, 0):\n        print(1)\n    case _:\n        0\n").encode(),
        b"case 1 if load(1, 4):",
    ),
    "walrus in a condition": (
        (HEAD + "if (n := load(1, 0)):\n    print(n)\n").encode(), b"(n := load(1, 4))",
    ),
    "inside an f-string": (
        (HEAD + "print(f'{load(\"a\", 0)!r:>{20}}')\n").encode(), b"{load(\"a\", 4)!r:>{20}}",
    ),
    "semicolons": ((HEAD + "a = 1; b = load(a, 0); print(b)\n").encode(), b"a = 1; b = load(a, 4); print(b)"),
    "below a decorator": (
        (HEAD + "import functools\n@functools.cache\ndef f(x=load(1, 0)):\n    return x\nf()\n").encode(),
        b"def f(x=load(1, 4)):",
    ),
    "lambda default and conditional": (
        (HEAD + "f = lambda v=(load(1, 0) if True else None): v\nf()\n").encode(), b"(load(1, 4) if True",
    ),
    "notebook exported to a script": (
        ("#!/usr/bin/env python\n# coding: utf-8\n\n# # Title\n\n# In[1]:\n\n\n" + HEAD
         + "# In[2]:\n\n\nprint(load(1, 0))\n\n\n# In[ ]:\n\n\n\n\n").encode(),
        b"# In[2]:\n\n\nprint(load(1, 4))\n\n\n# In[ ]:\n\n\n\n\n",
    ),
    "star arguments": ((HEAD + "k = {}\nprint(load(*[1], **k))\n").encode(), b"**{**k, \"workers\": 4})"),
    "async and type hints": (
        (HEAD + "async def f() -> 'list[int]':\n    return [load(i, 0) async for i in g()]\n").encode(),
        b"[load(i, 4) async for",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITED)
def test_edited_and_taken_back(name: str, tmp_path: Path) -> None:
    before, wanted = EDITED[name]
    project = tmp_path / "project"
    project.mkdir()
    script = project / "train.py"
    script.write_bytes(before)
    import tokenize

    with tokenize.open(script) as file:
        encoding = file.encoding
    text = before.decode("utf-8" if encoding == "utf-8-sig" else encoding)
    plan, seen = planned(script, text)
    job, run = arm(plan, seen, tmp_path)
    made = Path(job.files[0].shadow).read_bytes()
    assert wanted in made and made != before
    assert made.startswith(MARK) == before.startswith(MARK)
    deliver(job, run=run)
    sibling = project / "train_autotuned.py"
    assert sibling.read_bytes() == made and script.read_bytes() == before
    exec(compile(before, "train.py", "exec"), {"__name__": "before"})
    exec(compile(made, "train.py", "exec"), {"__name__": "after"})
    revert(run)
    assert [p.name for p in project.iterdir()] == ["train.py"] and script.read_bytes() == before
    script.write_bytes(made)
    again, _ = planned(script, made.decode("utf-8" if encoding == "utf-8-sig" else encoding))
    assert not any(g.admissible for g in again.groups), "the second time there is nothing to do"


def test_a_patch_of_several_files_keeps_their_bytes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    module = project / "data.py"
    before = ("# coding: latin-1\n" + HEAD + "def make():\n    return load('é', 0)\n").encode("latin-1")
    module.write_bytes(before)
    (project / "train.py").write_text("import data\nprint(data.make())\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    plan, seen = planned(module, before.decode("latin-1"), [sys.executable, "train.py"], project)
    job, run = arm(plan, seen, tmp_path)
    manifest = deliver(job, run=run)
    patch = next(Path(f.path) for f in manifest.files)
    assert "é" in (run / "patched" / "changes.diff").read_text(encoding="utf-8")
    subprocess.run(["git", "apply", str(patch)], cwd=project, check=True)
    assert module.read_bytes() == before.replace(b", 0)", b", 4)")


# name -> (bytes, what the refusal says): nothing may change
REFUSED = {
    "not UTF-8 and no cookie": ((HEAD + "print(load('é', 0))\n").encode("latin-1"), "not UTF-8"),
    "cookie of no encoding": (
        (HEAD.replace("def", "# coding: klingon\ndef", 1) + "load(1, 0)\n").encode(), "encoding",
    ),
    "cookie that does not fit": (
        ("# coding: ascii\n" + HEAD + "print(load('é', 0))\n").encode(), "not UTF-8",
    ),
    "broken syntax": ((HEAD + "print(load(1, 0)\n").encode(), "cannot be parsed"),
    "page break in front of a statement": ((HEAD + "\x0cprint(load(1, 0))\n").encode(), "losing characters"),
    "null byte": ((HEAD + "print(load(1, 0))\n\0").encode(), "cannot be parsed"),
    "python 2": ((HEAD + "print load(1, 0)\n").encode(), "cannot be parsed"),
    "already there": ((HEAD + "print(load(1, workers=4))\n").encode(), "already"),
    "already there, by position": ((HEAD + "print(load(1, 4))\n").encode(), "already"),
    "already there, in latin-1": (
        ("# coding: latin-1\n" + HEAD + "load('é', 4)\n").encode("latin-1"), "already",
    ),
    "already there, behind a mark": (MARK + (HEAD + "load(1, 4)\n").encode(), "already"),
    "already there, over carriage returns": (
        (HEAD + "load(1,\n  4)\n").replace("\n", "\r\n").encode(), "already",
    ),
    "utf-16": ((HEAD + "print(load(1, 0))\n").encode("utf-16"), "not UTF-8"),
    "unterminated string": ((HEAD + "print(load(1, 0)); x = 'a\n").encode(), "cannot be parsed"),
    "already there, in a condition": ((HEAD + "if (n := load(1, 4)):\n    0\n").encode(), "already"),
    "already there, in a match": ((HEAD + "match 1:\n  case 1 if load(1, 4):\n    0\n").encode(), "already"),
    "already there, below a decorator": (
        (HEAD + "import functools\n@functools.cache\ndef f(x=load(1, 4)):\n    return x\n").encode(),
        "already",
    ),
    "already there, between semicolons": ((HEAD + "a = 1; b = load(a, 4); print(b)\n").encode(), "already"),
    "already there, over a backslash": ((HEAD + "y = \\\n    load(1, \\\n   4)\n").encode(), "already"),
    "already there, in an exported notebook": (
        ("# coding: utf-8\n\n# In[1]:\n\n\n" + HEAD + "# In[2]:\n\n\nload(1, 4)\n").encode(),
        "already",
    ),
    "already there, in an f-string": ((HEAD + "print(f'{load(1, 4)}')\n").encode(), "already"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    before, reason = REFUSED[name]
    script = tmp_path / "train.py"
    script.write_bytes(before)
    text = before.decode("latin-1")
    good = HEAD + "print(load(1, 0))\n"
    try:
        plan, _ = planned(script, before.decode("utf-8-sig"))
    except (SyntaxError, ValueError):
        plan, _ = planned(script, good if "already" not in name else text)
    assert not any(g.admissible for g in plan.groups)
    assert any(reason in r for a in plan.advice for r in a.reasons), plan.advice
    assert script.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["train.py"]


NEWER = {
    "f-string with its own quotes": 'x = {"a": 1}\nprint(f"{x["a"]}", load(1, 0))\n',
    "type statement": "type Pair[T] = tuple[T, T]\nload(1, 0)\n",
    "generic function": "def first[T](x: list[T]) -> T: return x[0]\nload(1, 0)\n",
}


@pytest.mark.parametrize("name", NEWER)
def test_syntax_newer_than_this_python(name: str) -> None:
    text = HEAD + NEWER[name]
    old = text[: text.rindex("load(")]
    line, column = text.count("\n"), len(old) - old.rindex("\n") - 1
    site = site_of(
        HEAD + "load(1, 0)\n", calls_named(HEAD + "load(1, 0)\n", "load")[0], kind="loader", callee="t.load"
    )
    span = site.span.model_copy(  # type: ignore[union-attr]
        update={
            "line": line,
            "end_line": line,
            "byte_column": column,
            "end_byte_column": column + len("load(1, 0)"),
        }
    )
    site = site.model_copy(update={"span": span, "line": line})
    result = edit_source(text, [Edit("r", "set_keyword", site, SET)])
    try:
        libcst.parse_module(text)
    except libcst.ParserSyntaxError:
        assert "cannot be parsed" in str(result.refused[0]) and result.text == text
        return
    assert result.refused == []
    assert result.text == text[: text.rindex("load(")] + text[text.rindex("load(") :].replace(
        "load(1, 0)", "load(1, 0, workers=4)"
    )


def test_a_read_only_script_in_a_read_only_folder(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    script = project / "train.py"
    script.write_text(HEAD + "print(load(1, 0))\n")
    script.chmod(0o444)
    project.chmod(0o555)
    try:
        plan, seen = planned(script, script.read_text())
        job, run = arm(plan, seen, tmp_path)
        done = subprocess.run(job.command, cwd=job.cwd, capture_output=True, text=True)
        assert done.stdout == "[1, 4]\n", done.stderr
        if os.geteuid() != 0:  # root writes anywhere
            with pytest.raises(Exception, match="denied"):
                deliver(job, run=run)
        assert script.read_text().endswith("print(load(1, 0))\n")
    finally:
        project.chmod(0o755)


def test_a_linked_script_started_by_a_relative_path_that_changes_folder(tmp_path: Path) -> None:
    project, real = tmp_path / "project", tmp_path / "real"
    project.mkdir()
    (real / "inner").mkdir(parents=True)
    script = real / "inner" / "train.py"
    text = "import os, pathlib\n" + HEAD + (
        "os.chdir(pathlib.Path(__file__).resolve().parent)\n"
        "print(load(open('note.txt').read(), 0))\n"
    )  # fmt: skip
    script.write_text(text)
    (real / "inner" / "note.txt").write_text("n")
    (project / "go.py").symlink_to(script)
    plan, seen = planned(script, text, [sys.executable, "./go.py"], project)
    job, run = arm(plan, seen, tmp_path)
    done = subprocess.run(job.command, cwd=job.cwd, capture_output=True, text=True)
    assert done.stdout == "['n', 4]\n", done.stderr
    deliver(job, run=run)
    assert script.read_text() == text and (project / "go.py").is_symlink()
    revert(run)
    assert sorted(p.name for p in real.rglob("*.py")) == ["train.py"]


def test_as_many_sources_stay_as_they_are() -> None:
    assert len(REFUSED) >= len(EDITED)
