"""argparse: which namespace attribute came from which option, and how long the job plans to run."""

from __future__ import annotations

import re
from typing import Any

from .core import core
from .origins import remember_namespace
from .wrapping import observe

_EPOCHS = re.compile(r"^(num_train_epochs|num_epochs|n_epochs|epochs|max_epochs|epoch|nepochs)$")
_STEPS = re.compile(
    r"^(max_steps|max_train_steps|max_iters|max_iterations|num_steps|total_steps|train_steps|steps|iters)$"
)


def install(argparse: Any) -> None:
    observe(argparse.ArgumentParser, "parse_known_args", after=_parsed)


def _parsed(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    parser, (namespace, _) = args[0], result
    options = {}
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")] or list(
            action.option_strings
        )
        if names:
            options[action.dest] = names[0]
    remember_namespace(namespace, options)
    schedule: dict[str, Any] = {}
    for name, value in vars(namespace).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            continue
        if _EPOCHS.match(name):
            schedule["epochs_planned"] = float(value)
        elif _STEPS.match(name) and float(value).is_integer():
            schedule["max_steps_planned"] = int(value)
    if schedule:
        core.emit("schedule", schedule)
