"""What kind of process this is, told from its command line, and how it announces itself in hello/."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

_LAUNCHER_SCRIPTS = {
    "torchrun",
    "accelerate",
    "accelerate-launch",
    "deepspeed",
    "ds",
    "pip",
    "pip3",
    "ninja",
    "nvidia-smi",
}
_LAUNCHER_MODULES = {
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "deepspeed.launcher.launch",
    "deepspeed.launcher.runner",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "pip",
}
_LAUNCHERS = {("script", name) for name in _LAUNCHER_SCRIPTS} | {
    ("module", name) for name in _LAUNCHER_MODULES
}
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def describe() -> dict[str, Any]:
    """Shape of the command line (no values of options, no paths), and whether the process may train."""
    argv = list(getattr(sys, "orig_argv", sys.argv))
    flags: list[str] = []
    kind, target, rest = "interactive", "", []
    position = 1
    while position < len(argv):
        word = argv[position]
        if word in ("-c", "-m"):
            kind = "command" if word == "-c" else "module"
            target = argv[position + 1] if position + 1 < len(argv) else ""
            rest = argv[position + 2 :]
            break
        if word in ("-X", "-W"):
            flags.append(f"{word} {argv[position + 1] if position + 1 < len(argv) else ''}".strip())
            position += 2
            continue
        if word.startswith("-") and len(word) > 1:
            flags.append(word)
            position += 1
            continue
        kind, target, rest = "script", word, argv[position + 1 :]
        break
    reason, armed = "waits for a training step", True
    name = os.path.basename(target) if kind == "script" else target
    if kind == "command":
        name = ""
        for text, label in (
            ("multiprocessing.resource_tracker", "resource tracker"),
            ("multiprocessing.forkserver", "fork server"),
            ("multiprocessing.spawn", "spawned process"),
        ):
            if text in target:
                kind = label
        if kind == "resource tracker":
            armed, reason = False, "resource tracker"
        elif kind == "fork server":
            reason = "fork server: its children may become ranks"
    elif (kind, name) in _LAUNCHERS:
        kind, armed, reason = "launcher", False, "launcher"
    elif kind == "script" and "compile_worker" in target:
        kind, armed, reason = "compile worker", False, "compiler process"
    return {
        "kind": kind,
        "name": name,
        "flags": flags,
        "arguments": len(rest),
        "options": sorted({word.split("=", 1)[0] for word in rest if word.startswith("--")}),
        "armed": armed,
        "reason": reason,
    }


def rank_variables() -> dict[str, int]:
    found = {}
    for name in _RANK_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit():
            found[name] = int(value)
    return found


def write_hello(folder: str, description: dict[str, Any]) -> None:
    """hello/<pid>.json, created exclusively: an exec or a reused pid gets -2, -3 ..."""
    os.makedirs(folder, exist_ok=True)
    value = {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "interpreter": os.path.basename(sys.executable or ""),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "at_s": time.monotonic(),
        "ranks": rank_variables(),
        **description,
    }
    data = json.dumps(value).encode()
    for attempt in range(1, 100):
        suffix = "" if attempt == 1 else f"-{attempt}"
        path = os.path.join(folder, f"{os.getpid()}{suffix}.json")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
        return
