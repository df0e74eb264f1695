"""The function of the user's in which the training thread is while nothing is trained.

That is: between a backward or an update and the next fetch or forward, and in hooks that run during the
backward. A function counts with everything that it calls. What comes once in a while (an evaluation every so
many steps) is left out.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from types import CodeType, FrameType, FunctionType
from typing import Any

from . import frames, growth, loops, models, places, source

_MOST_DEPTH = 120
_FEWEST_LOOKS = 4
_STEADY = 0.4  # of the steps have to hold some of it
_INNER = 0.8  # an inner function is named instead of the outer one when it has this share of its time
# the update itself, waits for other ranks, and what other facts are about
_NAMED = (
    "/torch/optim/", "/torch/nn/utils/clip_grad", "/torch/serialization.py", "/torch/amp/",
    "/torch/distributed/distributed_c10d.py", "/torch/distributed/checkpoint/", "/torch/profiler/",
    "/torch/_dynamo/", "/torch/_inductor/", "/torch/utils/data/", "/safetensors/", "/accelerate/optimizer.py",
    "/accelerate/scheduler.py", "/loops/evaluation_loop.py", "/datasets/",
)  # fmt: skip
_FREE = frozenset({"no_grad", "inference_mode"})

_Root = tuple[
    CodeType, int
]  # a function and 0; of the function that trains, the line of the loop or statement

_whole: Counter[int] = Counter()  # by step: the time of all looks
_roots: defaultdict[_Root, Counter[int]] = defaultdict(Counter)  # the same inside that function
_looks: Counter[_Root] = Counter()
_inner: Counter[tuple[_Root, CodeType]] = Counter()
_depth: dict[CodeType, int] = {}
_lines: Counter[tuple[_Root, places.Place]] = Counter()
_hooks: set[_Root] = set()
_updates: set[CodeType] = set()  # methods of the user's own optimizers
_free_lines: dict[str, list[tuple[int, int]]] = {}


def start() -> None:
    """Called in the training thread."""
    for optimizer in models.optimizers():
        for kind in models.class_of(optimizer).__mro__:
            for member in vars(kind).values():
                if type(member) is FunctionType and frames.is_user(member.__code__.co_filename):
                    _updates.add(member.__code__)


def look(leaf: FrameType, weight_ns: int, ends: dict[CodeType, int]) -> None:
    """One look at the stack. `ends`: functions that were on it when a step ended, and their lines."""
    from .steps import steps

    _whole[steps.index] += weight_ns
    if not models.optimizers():
        return  # the loop updates the weights itself
    if steps.in_backward():
        chain = _hook(leaf)
        if chain:
            _add((chain[-1][0], 0), chain, weight_ns, steps.index)
            _hooks.add((chain[-1][0], 0))
    elif steps.beside() and not steps.in_optimizer() and not growth.forward_begun():
        chain = _beside(leaf, ends, bool(steps.training_loaders))
        if chain:
            code, line = chain[-1]
            root = (code, _statement(code, line, ends.get(code))) if code in ends else (code, 0)
            _add(root, chain, weight_ns, steps.index)


def _add(root: _Root, chain: list[places.Place], weight_ns: int, step: int) -> None:
    _roots[root][step] += weight_ns
    _looks[root] += 1
    _lines.update({(root, place): weight_ns for place in set(chain)})
    for out, (code, _) in enumerate(reversed(chain)):
        _depth[code] = max(out, _depth.get(code, 0))
    for code in {code for code, _ in chain}:
        _inner[root, code] += weight_ns


def _hook(leaf: FrameType) -> list[places.Place]:
    """User functions below the engine that runs the backward, innermost first; it calls hooks itself."""
    chain: list[places.Place] = []
    frame: FrameType | None = leaf
    last_user = False
    for _ in range(_MOST_DEPTH):
        if frame is None:
            return []
        code = frame.f_code
        if code.co_name == "_engine_run_backward":
            return chain if last_user else []
        if not frames.is_observer(code.co_filename):
            last_user = frames.is_user(code.co_filename)
            if _is_named(code):
                return []
            if last_user:
                chain.append((code, frame.f_lineno))
        frame = frame.f_back
    return []


def _beside(leaf: FrameType, ends: dict[CodeType, int], fetches: bool) -> list[places.Place]:
    """The user's functions below the training loop, innermost first; of the loop's own only the line."""
    chain: list[places.Place] = []
    frame: FrameType | None = leaf
    module = free = whole = False
    for _ in range(_MOST_DEPTH):
        if frame is None:
            break
        code = frame.f_code
        name = code.co_filename
        if frames.is_observer(name):
            frame = frame.f_back
            continue
        if _is_named(code):
            return []
        if frames.is_user(name):
            line = frame.f_lineno
            free = free or (module and _is_free(code, line))
            if not whole and not (code in ends and line == ends[code]):
                chain.append((code, line))
            whole = whole or code in ends
        elif code.co_name == "_call_impl" and name.endswith("module.py"):
            module = True
        elif code.co_name == "decorate_context" and name.endswith("_contextlib.py"):
            free = free or module
        elif code.co_name == "_engine_run_backward":  # torch.autograd.grad
            growth.forward_begins()
            return []
        frame = frame.f_back
    if module and not models.in_eval_mode():
        if not free:
            growth.forward_begins()  # of another model that is trained
        if not (free and fetches):  # without a loader it may be a teacher on the next batch
            return []
    return [] if any(code in _updates for code, _ in chain) else chain


def _is_named(code: CodeType) -> bool:
    name = frames.library_path(code.co_filename)
    return any(part in name for part in _NAMED)


def _is_free(code: CodeType, line: int) -> bool:
    """In a `with torch.no_grad():` of this file."""
    path = frames.absolute(code.co_filename)
    if path not in _free_lines:
        tree = source.tree(path)
        nodes: list[Any] = [] if tree is None else [n for n in ast.walk(tree) if isinstance(n, ast.With)]
        _free_lines[path] = [
            (node.body[0].lineno, node.body[-1].end_lineno or node.lineno)
            for node in nodes
            if any(
                isinstance(item.context_expr, ast.Call)
                and getattr(item.context_expr.func, "attr", getattr(item.context_expr.func, "id", ""))
                in _FREE
                for item in node.items
            )
        ]
    return any(first <= line <= last for first, last in _free_lines[path])


def _statement(code: CodeType, line: int, step_ends: int | None) -> int:
    """Lines of one inner loop belong together."""
    return loops.outermost(code, line, step_ends) or line


def found() -> dict[str, Any]:
    """Fields of HostSamples; one site."""
    whole = sum(_whole.values())
    best, most = None, 0
    for root, by_step in _roots.items():
        if _looks[root] >= _FEWEST_LOOKS and sum(by_step.values()) > most and _is_steady(by_step):
            best, most = root, sum(by_step.values())
    if best is None or not whole:
        return {"beside_frac": 0.0}
    codes = [code for (root, code), spent in _inner.items() if root == best and spent >= _INNER * most]
    code = max(codes, key=lambda known: _depth[known])
    lines = Counter({place[1]: n for (root, place), n in _lines.items() if root == best and place[0] is code})
    line = lines.most_common(1)[0][0]
    name = getattr(code, "co_qualname", code.co_name).replace("<locals>.", "")
    places.tell("beside_work", (code, line), code.co_name, _looks[best])
    return {
        "beside_frac": round(most / whole, 4),
        "beside_function": name,
        "beside_in_hook": best in _hooks,
    }


def _is_steady(by_step: Counter[int]) -> bool:
    """Does it come in many of the steps, and not once in a while?"""
    return len(by_step) >= _STEADY * len(_whole)
