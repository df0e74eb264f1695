"""Spans, origins and import hooks, on small modules written for the purpose."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotune.probe import finder, frames, origins

SOURCE = """\
import os


def record(*args, **kwargs):
    frames_seen.append(sys_getframe(1))
    return take(sys_getframe(1), args, kwargs)


def calls(args, extra, é="模型"):
    lr = args.lr
    size = args.size
    size = 3
    return [
        record(1, two=-2.5, three=[1, "x"]),
        record(args.lr, batch=args.batch_size * 2),
        record(lr, size=size, é=é), record(**extra),
        record(*[1, 2], home=os.environ.get("HOME")), record(
            token="hf_" + "a" * 20,
            callback=print,
        ),
    ]
"""


@pytest.fixture
def user_module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "user_calls.py"
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("user_calls", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    def take(frame: Any, args: Any, kwargs: Any) -> Any:
        span = frames.span_of(frame.f_code, frame.f_lasti)
        node = origins.call_node(frame.f_code.co_filename, span)
        found, flags = origins.arguments(node, frame, ["first", "second"], args, kwargs)
        return span, {name: (one["origin"], one["text"]) for name, one in found.items()}, flags

    vars(module).update(frames_seen=[], sys_getframe=sys._getframe, take=take)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no columns in this Python")
def test_every_call_has_its_span_and_every_argument_its_origin(user_module: ModuleType) -> None:
    parser = argparse.ArgumentParser()
    for name in ("--lr", "--batch-size", "--size"):
        parser.add_argument(name, type=float, default=1.0)
    namespace = parser.parse_args([])
    options = {action.dest: action.option_strings[0] for action in parser._actions}
    origins.remember_namespace(namespace, options)
    seen = user_module.calls(namespace, {"workers": 2})
    lines = SOURCE.encode().splitlines()
    assert len({span for span, _, _ in seen}) == 6
    for (line, column, end_line, end_column), _, _ in seen:
        assert lines[line - 1][column:].startswith(b"record(") and lines[end_line - 1][:end_column].endswith(
            b")"
        )
    arguments = [found for _, found, _ in seen]
    flags = [found for _, _, found in seen]
    assert arguments[0] == {
        "first": ("literal", "1"), "two": ("literal", "-2.5"), "three": ("literal", "[1, 'x']"),
    }  # fmt: skip
    assert arguments[1] == {"first": ("cli", "1.0"), "batch": ("expression", "2.0")}
    assert flags[1] == {"first": "--lr", "batch": "--batch-size"}
    # a name that only ever holds args.lr is the option; one that is set again is a variable
    assert arguments[2] == {"first": ("cli", "1.0"), "size": ("variable", "3"), "é": ("variable", "'模型'")}
    assert flags[2] == {"first": "--lr"}
    assert arguments[3] == {"workers": ("star-kwargs", "2")}
    assert arguments[4]["home"][0] == "env" and arguments[4]["first"][0] == "unknown"
    assert arguments[5]["token"] == ("expression", "<hidden>")
    assert arguments[5]["callback"] == ("variable", "builtins.print")


SPREAD = """
def settle(*args, **kwargs):
    found.append(arguments(sys_getframe(1)))


def calls(plain, mapping, read):
    settle(1, **plain)
    settle(1, lr=2, **mapping.get("all", mapping))
    settle(1, 2, **read())
    settle(1, **{"fused": False})
    settle(1, lr=2)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no columns in this Python")
def test_what_a_spread_of_unknown_content_may_bring(tmp_path: Path) -> None:
    """`**OmegaConf.to_container(cfg)`: whether it holds `fused` is not seen, so it may."""
    path = tmp_path / "spread.py"
    path.write_text(SPREAD)
    found: list[dict[str, str]] = []

    def arguments(frame: Any) -> dict[str, str]:
        node = origins.call_node(str(path), frames.span_of(frame.f_code, frame.f_lasti))
        values = {"lr": 2, "fused": False}
        given, _ = origins.arguments_from_source(node, frame, ["params", "lr"], values)
        return {name: one["origin"] for name, one in given.items()}

    space: dict[str, Any] = {"found": found, "arguments": arguments, "sys_getframe": sys._getframe}
    exec(compile(SPREAD, str(path), "exec"), space)
    space["calls"]({"fused": False}, {"fused": False}, lambda: {"fused": False})
    assert found == [
        {"params": "literal", "fused": "star-kwargs"},
        {"params": "literal", "lr": "literal", "fused": "star-kwargs"},
        {"params": "literal", "lr": "literal", "fused": "star-kwargs"},
        {"params": "literal", "fused": "star-kwargs"},
        {"params": "literal", "lr": "literal"},
    ]


def test_user_files_and_others(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("")
    assert frames.is_user(str(own))
    assert not frames.is_user("<string>") and not frames.is_user(str(tmp_path / "missing.py"))
    assert not frames.is_user(argparse.__file__) and not frames.is_user(pytest.__file__)
    assert not frames.is_user(frames.__file__)


@pytest.mark.parametrize(("package", "through_torch"), [("accelerate", False), ("torch", True)])
def test_an_environment_in_a_folder_called_torch(tmp_path: Path, package: str, through_torch: bool) -> None:
    """Only the package itself is torch, whatever the folders around it are called."""
    script = tmp_path / "job.py"
    script.write_text("found = prepare()\n")
    inner = f"/opt/torch/.venv/lib/python3.12/site-packages/{package}/data_loader.py"
    space = {"__name__": f"{package}.data_loader", "frames": frames, "sys": sys}
    exec(
        compile("def prepare():\n    return frames.user_behind_torch(sys._getframe())", inner, "exec"), space
    )
    job = {"__name__": "__main__", "prepare": space["prepare"]}
    exec(compile(script.read_text(), str(script), "exec"), job)
    user, torch_only = job["found"]
    assert user.f_code.co_filename == str(script) and torch_only is through_torch
    assert frames.library_path(inner) == f"/{package}/data_loader.py"


def test_import_hook_runs_once_after_the_module_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooked_package").mkdir()
    (tmp_path / "hooked_package" / "__init__.py").write_text("from . import inner\nready = True\n")
    (tmp_path / "hooked_package" / "inner.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    faults: list[str] = []
    monkeypatch.setattr(finder, "on_fault", faults.append)
    seen: list[tuple[str, bool]] = []
    finder.install()
    finder.install()
    assert sum(isinstance(one, finder._Finder) for one in sys.meta_path) == 1
    finder.when_imported("hooked_package", lambda module: seen.append((module.__name__, module.ready)))
    finder.when_imported("hooked_package.inner", lambda module: 1 / 0)
    package = importlib.import_module("hooked_package")
    assert seen == [("hooked_package", True)]
    assert faults == ["import hook of hooked_package.inner"]
    assert type(package.__spec__.loader).__module__ != finder.__name__
    assert package.__loader__ is package.__spec__.loader
    finder.when_imported("hooked_package", lambda module: seen.append(("now", True)))
    assert seen[-1] == ("now", True)
    with pytest.raises(ModuleNotFoundError):
        finder.when_imported("hooked_package.none", lambda module: None)
        importlib.import_module("hooked_package.none")
