"""Where the rows of the `datasets` package came from: the calls of `load_dataset`, for a generated script."""

from __future__ import annotations

import inspect
import os
from typing import Any

from . import finder
from .wrapping import observe

_loaded: list[dict[str, Any]] = []
_MOST = 20


def install() -> None:
    finder.when_imported("datasets", _datasets)


def loaded() -> list[dict[str, Any]]:
    return list(_loaded)


def _datasets(module: Any) -> None:
    observe(module, "load_dataset", after=_called)


def _called(original: Any, args: Any, kwargs: Any, result: Any, elapsed_ns: int) -> None:
    if len(_loaded) >= _MOST:
        return
    given = inspect.signature(original).bind(*args, **kwargs).arguments
    files = given.get("data_files")
    files = [files] if isinstance(files, (str, os.PathLike)) else files
    if isinstance(files, dict):
        files = files["train"] if set(files) == {"train"} else None
        files = [files] if isinstance(files, (str, os.PathLike)) else files
    record: dict[str, Any] = {
        "path": str(given["path"]),
        "split": str(given["split"]) if given.get("split") else None,
    }
    record["name"] = given.get("name") if isinstance(given.get("name"), str) else None
    record["folder"] = given.get("data_dir") if isinstance(given.get("data_dir"), str) else None
    if isinstance(files, (list, tuple)):
        record["files"] = [_absolute(os.fspath(file)) for file in files]
    elif given.get("data_files") is not None:
        record["files"] = ["?"]  # one file for each split
    if os.path.isdir(record["path"]):
        record["path"] = os.path.abspath(record["path"])
    rows = result
    if isinstance(result, dict):
        record["split"] = "train" if "train" in result else next(iter(result), None)
        rows = result.get(record["split"])
    features = getattr(rows, "features", None) or {}
    record["columns"] = {str(name): str(getattr(kind, "dtype", "other")) for name, kind in features.items()}
    if record not in _loaded:
        _loaded.append(record)


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)
