"""What a generated script is filled from when there is no run: a model, data, and settings given by hand."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autotune.apply.packing_gate import packing_decision
from autotune.errors import InputError
from autotune.facts.packing import Implementation, is_dense
from autotune.records.script import NotTakenOver, PackingContext, ScriptContext, TakenOver

# Keys of a saved configuration that say how it was saved, not what the model is.
_OF_THE_FILE = (
    "_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "_attn_implementation",
    "auto_map",
)  # fmt: skip


@dataclass(frozen=True)
class ModelSource:
    """What is known of the model without loading it."""

    path: str | None  # folder or hub id; None: built from `config` with random weights
    config: Mapping[str, Any] | None  # its configuration, where a file of it could be read
    where: str  # what was read

    @property
    def model_type(self) -> str | None:
        """The family: of the text part where the model has one."""
        config = self.config or {}
        text = config.get("text_config")
        own = text.get("model_type") if isinstance(text, Mapping) else None
        found = own or config.get("model_type")
        return str(found) if found else None


def find_model(name: str, hub_cache: Path | None = None) -> ModelSource:
    """A folder, a configuration file, or a hub id whose configuration may lie in the local cache.

    Raises InputError for a file or folder that is none of these.
    """
    path = Path(name)
    if path.is_dir():
        file = path / "config.json"
        if not file.is_file():
            raise InputError(
                "this folder holds no config.json", where=name, hint="name a folder of a saved model"
            )
        return ModelSource(name, _read_config(file), str(file))
    if path.suffix == ".json":
        config = _read_config(path)
        if "model_type" not in config:
            raise InputError(
                "this configuration has no model_type", where=name, hint="name a model's config.json"
            )
        return ModelSource(None, {k: v for k, v in config.items() if k not in _OF_THE_FILE}, name)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(
            "there is no such folder", where=name, hint="name a folder, a config.json or a hub id"
        )
    for file in _cached_configs(name, hub_cache or _hub_cache()):
        return ModelSource(name, _read_config(file), f"the local copy of {name}")
    return ModelSource(name, None, f"no config.json of {name} is on this machine")


def transformers_version(interpreter: str) -> str | None:
    """The version another interpreter has installed; None where it has none or does not start."""
    ask = "import importlib.metadata as m; print(m.version('transformers'))"
    try:
        done = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def decide_packing(
    model: ModelSource,
    model_type: str | None,
    kernels: Literal["fast", "fallback"] | None,
    version: str | None,
    wanted: PackingContext,
) -> PackingContext:
    """The verdict of the isolation table for this model; what is not known is not packed."""
    family = model_type or model.model_type
    if family is None:
        reason = (
            f"whether packed examples would see each other depends on the model's family, and {model.where}; "
            "--model-type FAMILY names it (the model_type of its config.json)"
        )
        return wanted.model_copy(update={"verdict": "unknown", "reason": reason})
    implementation: Implementation | None = "dense" if is_dense(family) else kernels
    if implementation is None:
        reason = f"{family}: how its recurrent layers run is not known; --kernels fast where they are fused"
        return wanted.model_copy(update={"verdict": "unknown", "reason": reason})
    return packing_decision(family, implementation, version, wanted)


def make_context(values: Mapping[str, Any], settings: Iterable[str]) -> ScriptContext:
    """The context from given parts and `part.field=value` settings, which win. Raises InputError."""
    context = with_settings(values, settings)
    taken = [
        TakenOver(what=what, value=value, source="given by hand")
        for what, value in (
            ("model", context.model.path or str((context.model.config or {}).get("model_type"))),
            ("data", context.data.source),
            ("kind of rows", context.data.kind),
        )
    ]
    left = [
        NotTakenOver(what="everything else", reason="no job was watched; these are defaults or your settings")
    ]
    return context.model_copy(update={"taken_over": taken, "not_taken_over": left})


def with_settings(values: Mapping[str, Any], settings: Iterable[str]) -> ScriptContext:
    """The context of these parts after `part.field=value` settings. Raises InputError."""
    from pydantic import ValidationError

    merged: dict[str, Any] = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    for setting in settings:
        _set(merged, setting)
    try:
        return ScriptContext.model_validate(merged)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        place = ".".join(str(p) for p in first["loc"])
        raise InputError(
            f"{place or 'the settings'}: {first['msg']}",
            hint="autotune generate --fields lists every setting",
        ) from None


def field_lines() -> list[str]:
    """One line for every setting: name, default, description."""
    out = []
    for part, field in ScriptContext.model_fields.items():
        model = field.annotation
        for name, inner in getattr(model, "model_fields", {}).items():
            default = (
                "required" if inner.is_required() else repr(inner.get_default(call_default_factory=True))
            )
            out.append(f"{part}.{name} = {default}: {inner.description or ''}")
    return out


def _set(values: dict[str, Any], setting: str) -> None:
    import yaml

    name, sign, text = setting.partition("=")
    path = name.split(".")
    if not sign or not all(path):
        raise InputError(f"'{setting}' is no setting", hint="write PART.FIELD=VALUE")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    node = values
    for part in path[:-1]:
        inner = node.get(part)
        node[part] = dict(inner) if isinstance(inner, Mapping) else {}
        node = node[part]
    node[path[-1]] = value


def _read_config(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise InputError(
            f"this configuration cannot be read: {str(fault).splitlines()[0]}", where=str(file)
        ) from None
    if not isinstance(found, dict):
        raise InputError("this configuration is no JSON object", where=str(file))
    return found


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))


def _cached_configs(name: str, cache: Path) -> list[Path]:
    folder = cache / f"models--{name.replace('/', '--')}" / "snapshots"
    return sorted(folder.glob("*/config.json"), key=lambda file: file.stat().st_mtime, reverse=True)
