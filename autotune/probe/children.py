"""Programs a process of the job starts with an environment of its own making keep the observer's folder.

`subprocess.run(command, env={...})` is how sweeps and job runners start trainings. Only PYTHONPATH is touched
in the copy that the child gets, as it was for the job itself.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from . import finder
from .core import core

_POPEN_ENV = 10  # position of env in Popen's arguments behind the command
_NAME = "PYTHONPATH"


def install(inject: str) -> None:
    """`inject`: the folder that holds our sitecustomize."""
    with_folder = functools.partial(_with_folder, inject)
    finder.when_imported("subprocess", functools.partial(_popen, with_folder))
    for name, position in (("execve", 2), ("posix_spawn", 2), ("posix_spawnp", 2)):
        if hasattr(os, name):
            setattr(os, name, _with_environment(getattr(os, name), position, with_folder))
    _inherited(inject, with_folder)


def _inherited(inject: str, with_folder: Any) -> None:
    """A job that sets or removes PYTHONPATH in os.environ: its children inherit it with our folder in front.

    os.environ itself shows what the job has put there.
    """
    name = os.fsencode(_NAME)
    put, remove = os.putenv, os.unsetenv

    @functools.wraps(put)
    def putenv(key: Any, value: Any, /) -> None:
        if os.fsencode(key) == name:
            value = with_folder({_NAME: os.fsdecode(value)})[_NAME]
        put(key, value)

    @functools.wraps(remove)
    def unsetenv(key: Any, /) -> None:
        if os.fsencode(key) == name:
            put(key, inject)
        else:
            remove(key)

    os.putenv, os.unsetenv = putenv, unsetenv


def _with_folder(inject: str, environment: Any) -> Any:
    """The environment with the folder first on PYTHONPATH; anything unusual as it is."""
    try:
        if not isinstance(environment, Mapping) or not all(isinstance(k, str) for k in environment):
            return environment
        parts = [part for part in str(environment.get(_NAME, "")).split(os.pathsep) if part]
        if inject in parts:
            return environment
        return {**environment, _NAME: os.pathsep.join([inject, *parts])}
    except Exception:
        core.sink.fault("environment of a child")
        return environment


def _popen(with_folder: Any, module: ModuleType) -> None:
    original = module.Popen.__init__  # type: ignore[attr-defined]

    @functools.wraps(original)
    def __init__(self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        if kwargs.get("env") is not None:
            kwargs["env"] = with_folder(kwargs["env"])
        elif len(rest) >= _POPEN_ENV and rest[_POPEN_ENV - 1] is not None:
            rest = (*rest[: _POPEN_ENV - 1], with_folder(rest[_POPEN_ENV - 1]), *rest[_POPEN_ENV:])
        original(self, args, *rest, **kwargs)

    module.Popen.__init__ = __init__  # type: ignore[attr-defined]


def _with_environment(original: Any, position: int, with_folder: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = (*args[:position], with_folder(args[position]), *args[position + 1 :])
        elif "env" in kwargs:
            kwargs["env"] = with_folder(kwargs["env"])
        return original(*args, **kwargs)

    return call
