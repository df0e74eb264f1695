"""Compilation during training: torch.compile's own counters, and Triton kernels built on first use."""

from __future__ import annotations

import re
import sys
from typing import Any

from . import frames, places
from .core import core
from .redaction import clean
from .wrapping import observe

_graphs_before: int | None = None
_graphs_first: int | None = None
_built = 0  # Triton kernels built or tuned since the last step
_built_total = 0
_steps_with = 0
_MOST_REASONS = 60
_reasons: dict[tuple[str, str, str], dict[str, Any]] = {}  # (kind, function, reason) -> record
_told: dict[str, int] = {}  # graph breaks counted by reason
_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+?),? ')
_taken: set[str] = set()  # compile ids whose reason is counted
_MOST_PIECES = 20
_pointed: set[tuple[str, int]] = set()  # lines of the user's that were told as places of a break


def install_triton(module: Any) -> None:
    """`module`: triton.compiler.compiler."""
    observe(module, "compile", after=_kernel_built)
    package = sys.modules.get("triton.compiler")
    if package is not None:
        package.compile = module.compile  # type: ignore[attr-defined]


def install_autotuner(module: Any) -> None:
    """`module`: triton.runtime.autotuner."""
    observe(module.Autotuner, "_bench", after=_kernel_built)


def _kernel_built(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    global _built, _built_total
    _built += 1
    _built_total += 1


def graphs() -> int | None:
    """Graphs torch.compile has made so far; None when it was never used."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return None
    return int(utils.counters["stats"].get("unique_graphs", 0))


def step_ended(index: int) -> bool:
    """True when something was compiled during the step that ended."""
    global _graphs_before, _graphs_first, _built, _steps_with
    made = graphs()
    compiled = _built > 0 or (made is not None and made != (_graphs_before or 0))
    _graphs_before = made
    if index == 1:
        _graphs_first = made or 0
    _built = 0
    _steps_with += compiled
    return compiled


def counters() -> dict[str, float]:
    found: dict[str, float] = {"compile_steps": float(_steps_with)}
    made = graphs()
    if made is not None:
        utils: Any = sys.modules["torch._dynamo.utils"]
        found["compiled_graphs"] = float(made)
        found["recompiles"] = float(made - (_graphs_first or 0))
        found["graph_breaks"] = float(sum(_breaks(utils).values()))
    if _built_total:
        found["triton_builds"] = float(_built_total)
    return found


def reasons() -> None:
    """Send why functions were compiled again and where graphs broke, as torch keeps it."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return
    changed: list[dict[str, Any]] = []
    for metrics in getattr(utils, "get_compilation_metrics", list)():
        # frame 3, compiled for the second time: "3/1" (with "_1" behind it when tracing began again)
        number = str(getattr(metrics, "compile_id", None) or "")
        attempt = number.rsplit("/", 1)[-1].split("_")[0]
        if number in _taken or not attempt.isdigit() or int(attempt) == 0:
            continue
        if getattr(metrics, "is_forward", True) is False:
            continue
        _taken.add(number)
        if frames.is_observer(str(metrics.co_filename)):
            continue
        text = getattr(metrics, "recompile_reason", None) or "this torch does not keep the reason"
        place = (str(metrics.co_name), str(metrics.co_filename), int(metrics.co_firstlineno or 0))
        changed.append(_reason("recompile", place, text, 1))
    stacks = _break_stacks(utils)
    for text, count in _breaks(utils).items():
        new = int(count) - _told.get(str(text), 0)
        if new:
            _told[str(text)] = int(count)
            broken = stacks.get(_short(text), [])
            place = _place_of_break(str(text), broken)
            if frames.is_observer(place[1]):
                continue
            record = _reason("graph-break", place, text, new)
            if record:
                record["pieces"] = _pieces(broken)
            changed.append(record)
            _point(broken)
    for record in changed:
        if record:
            core.emit("compile_reason", record)


def _break_stacks(utils: Any) -> dict[str, list[list[Any]]]:
    """The stacks at which graphs broke, from the compiled function inwards, by reason."""
    found: dict[str, list[list[Any]]] = {}
    for entry in getattr(utils, "graph_break_reasons", ()):
        stack = list(getattr(entry, "user_stack", None) or ())
        if stack:
            found.setdefault(_short(getattr(entry, "reason", "")), []).append(stack)
    return found


def _place_of_break(text: str, stacks: list[list[Any]]) -> tuple[str, str, int]:
    found = _PLACE.search(text)
    if found:
        return found[3], found[1], int(found[2])
    if stacks:
        frame = next(
            (f for f in reversed(stacks[0]) if not frames.is_observer(str(f.filename))), stacks[0][-1]
        )
        return str(frame.name), str(frame.filename), int(frame.lineno or 0)
    return "", "", 0


def _pieces(stacks: list[list[Any]]) -> list[str]:
    """Functions that were called inside the compiled one and run by themselves since the break."""
    names = (
        f"{frame.filename}:{frame.name}"
        for stack in stacks
        for frame in stack[1:]
        if not frames.is_observer(str(frame.filename))
    )
    return list(dict.fromkeys(names))[:_MOST_PIECES]


def _point(stacks: list[list[Any]]) -> None:
    """Tell the user's innermost line of each break as a site; it is shown, never edited."""
    for stack in stacks:
        own = next((frame for frame in reversed(stack) if frames.is_user(str(frame.filename))), None)
        if own is None:
            continue
        place = (frames.absolute(str(own.filename)), int(own.lineno or 0))
        if place not in _pointed and len(_pointed) < _MOST_PIECES:
            _pointed.add(place)
            places.tell_line("graph_break", *place, str(own.name), "torch.compile", len(stacks))


def _breaks(utils: Any) -> dict[Any, int]:
    """Graph breaks by reason; which counter holds them depends on the version of torch."""
    tables = (utils.counters["graph_break"], utils.counters["unimplemented"])
    return max(tables, key=lambda table: sum(table.values()))


def _short(text: object) -> str:
    """First line of a reason, without the numbers of the compiled versions it speaks of."""
    lines = [line.strip(" -\t") for line in str(text).splitlines() if line.strip(" -\t")]
    line = lines[0] if lines else ""
    head, colon, rest = line.partition(": ")
    return clean(rest if colon and "/" in head and head.replace("/", "").isdigit() else line, 300)


def _reason(kind: str, place: tuple[str, str, int], text: object, count: int) -> dict[str, Any]:
    key = (kind, place[0], _short(text))
    if key not in _reasons:
        if len(_reasons) >= _MOST_REASONS:
            return {}
        function, file, line = place
        _reasons[key] = {
            "kind": kind, "function": function, "file": file, "line": line, "reason": key[2], "count": 0,
        }  # fmt: skip
    _reasons[key]["count"] += count
    return _reasons[key]
