"""What the job is made of, for a generated script: config, data set, optimizer settings."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from typing import Any
from weakref import WeakKeyDictionary

from . import frames, models, recipe_data, recipe_settings
from .core import core, hook

_arguments: WeakKeyDictionary[Any, tuple[tuple[Any, ...], dict[str, Any]]] = WeakKeyDictionary()
_tokenizers: list[Any] = []
_PLAIN = (str, int, float, bool, type(None))
_MOST_TEXT = 400
_sent = False


def install(torch: Any) -> None:
    """Remember how data sets and schedules were made."""
    recipe_settings.install(torch)
    recipe_data.install()
    dataset = torch.utils.data.Dataset
    inherited = dataset.__new__

    @hook
    def remember(instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if type(instance).__module__.split(".", 1)[0] in ("torch", "datasets"):
            return
        _arguments[instance] = (args, kwargs)
        for value in (*args, *kwargs.values()):
            saw_tokenizer(value)

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        instance = inherited(cls) if inherited is object.__new__ else inherited(cls, *args, **kwargs)
        remember(instance, args, kwargs)
        return instance

    dataset.__new__ = new


def saw_tokenizer(value: Any) -> None:
    """An object that was handed to a data set or a trainer; only tokenizers are kept."""
    if _is_tokenizer(value) and all(value is not known for known in _tokenizers):
        _tokenizers.append(value)


def emit(loaders: Any) -> None:
    """Send the recipe once; `loaders` are those that fed training steps."""
    global _sent
    if _sent:
        return
    _sent = True
    found: dict[str, Any] = {}
    root = models.root()
    config = getattr(root, "config", None)
    if config is None and root is not None:
        config = getattr(getattr(root, "module", None), "config", None)
    if config is not None and hasattr(config, "to_diff_dict"):
        found["model_path"] = _from_anywhere(getattr(config, "name_or_path", None) or None)
        found["model_config_values"] = _jsonable({**config.to_diff_dict(), "model_type": config.model_type})
    known = models.optimizers()
    for optimizer in known[:1]:
        found["optimizer"], found["ignored"] = recipe_settings.optimizer_settings(optimizer)
        found["schedules"] = recipe_settings.schedules_of(optimizer)
        if len(known) > 1:
            found["ignored"].append(f"{len(known) - 1} more optimizers")
    found["seed"] = recipe_settings.seed_of(sys.modules["torch"], core.settings.seed)
    found["adapter"] = recipe_settings.adapter_of(root)
    found["loaded"] = recipe_data.loaded()
    for loader in list(loaders)[:1]:
        dataset = getattr(loader, "dataset", None)
        if dataset is not None:
            found["dataset"] = _dataset(dataset)
    if _tokenizers:
        _tokenizer(_tokenizers[0], found)
    core.emit("recipe", found)


def _dataset(dataset: Any) -> dict[str, Any]:
    kind = type(dataset)
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    record: dict[str, Any] = {
        "class_name": kind.__qualname__,
        "file": os.path.abspath(file) if _is_users(file) else None,
        "module": kind.__module__,
    }
    if record["file"]:
        record["guarded"] = _is_guarded(record["file"])
    # a plain list of examples takes no weak reference, and nobody constructed it with arguments
    known = _arguments.get(dataset) if getattr(kind, "__weakrefoffset__", 0) else None
    if known is not None:
        _bound(kind, known, record)
    try:
        example = dataset[0] if hasattr(dataset, "__getitem__") else None
    except Exception:  # the job's own code (an IterableDataset has no item 0, say): the keys stay unknown
        example = None
    if isinstance(example, dict):
        record["item_keys"] = [str(key) for key in example]
    return record


def _bound(kind: Any, known: tuple[tuple[Any, ...], dict[str, Any]], record: dict[str, Any]) -> None:
    args, kwargs = known
    try:
        bound = inspect.signature(kind.__init__).bind(None, *args, **kwargs).arguments
    except TypeError:
        record["unknown_arguments"] = ["?"]
        return
    plain: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in list(bound.items())[1:]:
        if _is_tokenizer(value):
            record["tokenizer_argument"] = name
        elif isinstance(value, os.PathLike):
            plain[name] = os.fspath(value)
        elif isinstance(value, _PLAIN) and len(str(value)) <= _MOST_TEXT:
            plain[name] = value
        else:
            unknown.append(name)
    record["arguments"], record["unknown_arguments"] = plain, unknown


def _tokenizer(tokenizer: Any, found: dict[str, Any]) -> None:
    found["tokenizer_class"] = type(tokenizer).__name__
    path = getattr(tokenizer, "name_or_path", "") or ""
    found["tokenizer_path"] = _from_anywhere(path) if os.path.isdir(path) or "/" in path else None
    if found["tokenizer_path"] is None and hasattr(tokenizer, "save_pretrained"):
        folder = os.path.join(core.settings.folder, "recipe", "tokenizer")
        os.makedirs(folder, exist_ok=True)
        tokenizer.save_pretrained(folder)
        found["tokenizer_saved"] = os.path.join("recipe", "tokenizer")


def _is_tokenizer(value: Any) -> bool:
    return hasattr(value, "pad_token") and callable(getattr(value, "encode", None))


def _is_users(file: Any) -> bool:
    return isinstance(file, str) and file.endswith(".py") and frames.is_user(file)


def _from_anywhere(name: str | None) -> str | None:
    """A hub id as it is, a folder so that it is found from any working folder."""
    return os.path.abspath(name) if name and os.path.isdir(name) else name


def _is_guarded(path: str) -> bool:
    """Whether importing the file leaves training alone: nothing is called at its top level."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return False
    return not any(isinstance(node, (ast.For, ast.While)) or _calls(node) for node in tree.body)


def _calls(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _jsonable(value: Any, depth: int = 16) -> Any:
    if isinstance(value, dict) and depth:
        return {str(key): _jsonable(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and depth:
        return [_jsonable(inner, depth - 1) for inner in value]
    return value if isinstance(value, _PLAIN) else str(value)
