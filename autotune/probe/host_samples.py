"""Where the training thread is: a thread beside it reads its stack every few milliseconds of the timed steps.

A look stands for the time since the last one: it has to wait while Python code holds the interpreter. Two
things come of it: the function of the user's that computes in a Python loop, and the library function
(no training library) that the user's code calls in the step. A loop that holds the end of a step is the
training loop itself and does not count. Nothing runs in the training thread, and nothing in trials.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter, defaultdict
from time import perf_counter_ns, thread_time_ns
from types import CodeType, FrameType, ModuleType
from typing import Any

from . import beside_time, frames, growth, loops, models, places
from .core import core

_EVERY_S = 0.007
_SLOWEST_S = 0.03
# within the usual 5 ms many a loop is over: looks would fall on what gives the interpreter away after it
_SWITCH_S = 0.0005
_MOST_SHARE = 0.01  # of the window that the samples may take; beyond it they become rarer
_MOST_DEPTH = 120
_FEWEST = 20  # samples that say something
_MOSTLY = 0.7
_OFTEN = 0.2  # of the steps hold what is said to be in every step
_INNER = 0.8  # an inner function is named instead of the outer one when it has this share of its samples
# packages whose functions are the training itself, and what only passes calls on
_TRAINING = {
    "torch", "transformers", "accelerate", "lightning", "pytorch_lightning", "lightning_fabric",
    "peft", "trl", "deepspeed", "diffusers", "timm", "torchvision", "torchaudio", "einops", "fla",
    "flash_attn", "xformers", "bitsandbytes", "apex", "liger_kernel", "megatron", "unsloth",
    "torchtune", "torchrec", "torch_geometric", "axolotl", "llamafactory", "jaxtyping", "tqdm",
    "functools", "contextlib", "runpy", "threading", "importlib", "concurrent", "asyncio", "queue",
    "multiprocessing", "selectors", "__main__",
}  # fmt: skip

# made of tensors and no part of training; called as a module one may be a loss, by these methods never
_METRICS, _METRIC_METHODS = {"torchmetrics", "torcheval", "ignite"}, {"compute", "update", "wrapped_func"}
_TENSORS = {"torch", "transformers", "accelerate", "lightning", "pytorch_lightning", "jax", "tensorflow"}
_Call = tuple[CodeType, int, str]  # caller, its line, what it calls

_thread: threading.Thread | None = None
_over = threading.Event()
_taken = 0
_whole_ns = 0  # time that the looks stand for; the counters below hold parts of it
_spent_ns = 0
_switch_s = 0.005  # as it was
_loops: Counter[places.Place] = Counter()  # in a Python loop, by each user function around it
_depth: dict[CodeType, int] = {}  # how far out that function was, at most
_all: Counter[CodeType] = Counter()  # all samples with that function on the stack
_calls: Counter[_Call] = Counter()
_call_steps: defaultdict[str, set[int]] = defaultdict(set)  # steps in which a look found it
_steps: set[int] = set()
_within: Counter[tuple[_Call, tuple[places.Place, ...]]] = Counter()  # in a loop, what is around
_own: Counter[places.Place] = Counter()  # at a line itself: in functions without a Python frame
_loading: Counter[places.Place] = Counter()  # samples inside a loader of this process
_apart: dict[str, bool] = {}  # by module
_ends: dict[CodeType, int] = {}  # functions on the stack at the end of a step, and their lines


def start() -> None:
    """Called at a step's end in the training thread."""
    global _thread, _switch_s
    if _thread is not None or not core.settings.full:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frames.is_user(frame.f_code.co_filename):
            loops.inside(frame.f_code, frame.f_lineno)  # reads the file now and not while samples are taken
            _ends.setdefault(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    beside_time.start()
    _over.clear()
    _switch_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    _thread = threading.Thread(
        target=_watch, args=(threading.get_ident(),), name="autotune-samples", daemon=True
    )
    _thread.start()


def finish() -> None:
    """The timed steps are over."""
    global _thread
    if _thread is None or _over.is_set():
        return
    _over.set()
    _thread.join(1.0)
    if abs(sys.getswitchinterval() - _SWITCH_S) < 1e-6:  # the job did not set its own meanwhile
        sys.setswitchinterval(_switch_s)
    core.emit("host_samples", _found())


def _watch(ident: int) -> None:
    global _taken, _spent_ns
    dice, every_s, begun_ns = random.Random(0), _EVERY_S, perf_counter_ns()
    last_ns = begun_ns
    while not _over.wait(every_s * dice.uniform(0.6, 1.4)):
        start_ns, cpu_ns = perf_counter_ns(), thread_time_ns()
        frame = sys._current_frames().get(ident)
        if frame is None:
            return
        try:
            _take(frame, start_ns - last_ns)
        except Exception:
            core.sink.fault("host_samples")
            return
        finally:
            del frame
        last_ns = perf_counter_ns()
        _spent_ns += thread_time_ns() - cpu_ns  # while a look waits for the interpreter, the job runs
        if _spent_ns > _MOST_SHARE * (perf_counter_ns() - begun_ns):
            every_s = min(_SLOWEST_S, 1.5 * every_s)
        else:
            every_s = max(_EVERY_S, every_s / 1.2)  # the first looks read files


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".", 1)[0]


def _is_apart(frame: FrameType) -> bool:
    """A function of a module that has nothing to do with torch."""
    module = str(frame.f_globals.get("__name__", ""))
    known = _apart.get(module)
    if known is None:
        known = _package(frame) not in _TRAINING and not any(
            getattr(value, "__name__", "").split(".", 1)[0] in _TENSORS
            for value in list(frame.f_globals.values())
            if type(value) is ModuleType
        )
        known = _apart[module] = known and not frame.f_code.co_filename.startswith("<")
    return known


def _is_metric(frame: FrameType) -> bool:
    return frame.f_code.co_name in _METRIC_METHODS and _package(frame) in _METRICS


def _take(leaf: FrameType, weight_ns: int) -> None:
    """One look: the stack from the innermost frame outwards."""
    global _taken, _whole_ns
    if frames.is_observer(leaf.f_code.co_filename):
        return
    from .steps import steps

    _taken += 1
    _whole_ns += weight_ns
    _steps.add(steps.index)
    beside_time.look(leaf, weight_ns, _ends)
    plain = True  # from the innermost frame to here nothing of a training library
    looping = loading = below = False
    inner: FrameType | None = None
    innermost: FrameType | None = None
    called: tuple[CodeType, int, str] | None = None
    first_user: places.Place | None = None
    chain: list[places.Place] = []
    seen: set[CodeType] = set()
    frame: FrameType | None = leaf
    depth = 0
    while frame is not None and depth < _MOST_DEPTH:
        code = frame.f_code
        if frames.is_observer(code.co_filename):  # a wrapper around what the job calls
            frame = frame.f_back
            continue
        innermost = innermost or frame
        if frames.is_user(code.co_filename):
            place = (code, frame.f_lineno)
            if first_user is None:
                first_user = place
                below = not loading  # the loader calls it, and not it the loader
                if inner is not None and (_is_apart(inner) or _is_metric(inner)):
                    called = (*place, _name(inner))
                    _call_steps[called[2]].add(steps.index)
            if plain and not loading:
                chain.append(place)
                looping = looping or loops.inside(code, frame.f_lineno, _ends.get(code))
            if code not in seen:
                seen.add(code)
                _all[code] += weight_ns
        elif _package(frame) in _TRAINING:
            name = code.co_filename
            if "_contextlib" not in name:  # a decorator such as torch.no_grad()
                plain = False
            loading = loading or "torch/utils/data" in name.replace("\\", "/")
        inner, frame = frame, frame.f_back
        depth += 1
    if loading:
        if first_user is not None and below:
            _loading[first_user] += weight_ns
        return
    apart = first_user is not None and growth.outside(first_user, weight_ns)
    if looping and called is not None:
        _within[called, tuple(dict(chain).items())] += weight_ns
    if looping:
        for out, place in enumerate(dict(chain).items()):
            _loops[place] += weight_ns
            _depth[place[0]] = max(out, _depth.get(place[0], 0))
    elif called is not None:
        _calls[called] += weight_ns
    elif apart and first_user is not None and innermost is not None and innermost.f_code is first_user[0]:
        _own[first_user] += weight_ns


def _name(frame: FrameType) -> str:
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    if _is_metric(frame):  # a wrapper around the method, made by a function named after it
        name = name.split(".<locals>.", 1)[0].replace("._wrap_", ".")
    return f"{frame.f_globals.get('__name__', '')}.{name}"


def _sort_out() -> None:
    """A loop line that mostly waits for one library function is that function's, not the loop's."""
    lines: Counter[_Call] = Counter()
    for (called, _), count in _within.items():
        lines[called] += count
    for (called, chain), count in _within.items():
        code, line, _ = called
        if lines[called] >= _MOSTLY * max(_loops[code, line], lines[called]):
            _calls[called] += count
            _loops.subtract(dict.fromkeys(chain, count))


def _found() -> dict[str, Any]:
    """Fields of HostSamples, and one site for each place that is named."""
    found: dict[str, Any] = {"samples": _taken, "spent_ms": round(_spent_ns / 1e6, 3)}
    if _taken < _FEWEST:
        return found
    _sort_out()
    found.update(beside_time.found())
    by_function: Counter[CodeType] = Counter()
    for (code, _), count in _loops.items():
        by_function[code] += count
    found["loop_frac"] = 0.0
    # mostly loop: a function that also trains is only around it
    hot = {code: count for code, count in by_function.items() if count >= 0.7 * _all[code]}
    if hot:
        most = max(hot.values())
        code = min((c for c, n in hot.items() if n >= _INNER * most), key=lambda c: _depth[c])
        line, _ = max(((k[1], n) for k, n in _loops.items() if k[0] is code), key=lambda item: item[1])
        found["loop_frac"], found["loop_function"] = round(hot[code] / _whole_ns, 4), code.co_name
        places.tell("host_loop", (code, line), code.co_name, _calls_of(hot[code]))
    found["call_frac"] = 0.0
    names: Counter[str] = Counter()
    for (_, _, name), count in _calls.items():
        if len(_call_steps[name]) >= _OFTEN * len(_steps):  # and not at the end of an epoch
            names[name] += count
    if names:
        name, count = names.most_common(1)[0]
        found["call_frac"], found["call_name"] = round(count / _whole_ns, 4), name
        callers = [(n, c, at) for (c, at, called), n in _calls.items() if called == name]
        number, code, line = max(callers, key=lambda item: item[0])
        places.tell("host_call", (code, line), name, _calls_of(number))
    found["own_frac"] = 0.0
    if _own:
        (code, line), count = _own.most_common(1)[0]
        found["own_frac"] = round(count / _whole_ns, 4)
        found["own_function"] = getattr(code, "co_qualname", code.co_name)
        places.tell("host_line", (code, line), code.co_name, _calls_of(count))
    _hooks(found)
    if _loading:
        (code, line), count = _loading.most_common(1)[0]
        found["loading_frac"] = round(sum(_loading.values()) / _whole_ns, 4)
        name = getattr(code, "co_qualname", code.co_name)
        found["loading_function"] = name.split(".<locals>.<", 1)[0]  # a comprehension is its function's
        places.tell("host_loading", (code, line), code.co_name, _calls_of(count))
    return found


def _hooks(found: dict[str, Any]) -> None:
    """Forward hooks of the user's on the model: how many modules have one, and the time in them."""
    model = models.root()
    hooked: Counter[CodeType] = Counter()
    modules = 0
    for module in model.modules() if model is not None else ():
        functions = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        codes = {
            code
            for function in functions
            if isinstance(code := getattr(function, "__code__", None), CodeType)
            and frames.is_user(code.co_filename)
        }
        hooked.update(codes)
        modules += bool(codes)
    found["hooked_modules"] = modules
    found["hooks_frac"] = round(sum(_all[code] for code in hooked) / _whole_ns, 4)
    if hooked:
        code = max(hooked, key=lambda known: _all[known])
        places.tell("forward_hook", (code, code.co_firstlineno), code.co_name, hooked[code])


def _calls_of(spent_ns: int) -> int:
    """Looks that stand for this time, about."""
    return max(1, round(_taken * spent_ns / _whole_ns))
