"""What each special kernel function of the model's own modeling files resolved to.

transformers >= 5.15 freezes the choice in a closure when the modeling file is imported, from 5.17 on with
the kernel's name. Older versions keep the functions in module globals, which are None where a package is
missing. Most families then take all of them or none (`is_fast_path_available` in their forward); the Qwen
ones take each that is there.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib import metadata
from typing import Any

from . import hub_facts

# function -> (role, package imported, distribution)
_FLA, _CONV, _MAMBA = "flash-linear-attention", "causal-conv1d", "mamba-ssm"
FUNCTIONS: dict[str, tuple[str, str, str]] = {
    "chunk_gated_delta_rule": ("linear_attention", "fla", _FLA),
    "fused_recurrent_gated_delta_rule": ("other", "fla", _FLA),
    "chunk_kda": ("linear_attention", "fla", _FLA),
    "fused_recurrent_kda": ("other", "fla", _FLA),
    "mamba_split_conv1d_scan_combined": ("linear_attention", "mamba_ssm", _MAMBA),
    "mamba_chunk_scan_combined": ("linear_attention", "mamba_ssm", _MAMBA),
    "mamba_inner_fn": ("linear_attention", "mamba_ssm", _MAMBA),
    "selective_scan_fn": ("linear_attention", "mamba_ssm", _MAMBA),
    "selective_state_update": ("other", "mamba_ssm", _MAMBA),
    "causal_conv1d_fn": ("causal_conv", "causal_conv1d", _CONV),
    "causal_conv1d_update": ("other", "causal_conv1d", _CONV),
}
# transformers' PyTorch code -> the kernel in whose place it runs
REFERENCES = {
    "torch_chunk_gated_delta_rule": "chunk_gated_delta_rule",
    "torch_recurrent_gated_delta_rule": "fused_recurrent_gated_delta_rule",
    "chunk_kimi_delta_attention": "chunk_kda",
    "recurrent_kimi_delta_attention": "fused_recurrent_kda",
    "mamba2_chunk_scan": "mamba_chunk_scan_combined",
    "mamba2_split_conv1d_scan_combined": "mamba_split_conv1d_scan_combined",
    "mamba2_selective_state_update": "selective_state_update",
    "mamba_selective_state_update": "selective_state_update",
    "mamba_selective_scan": "selective_scan_fn",
}
_FLAG = "is_fast_path_available"
_errors: dict[str, str | None] = {}


def collect(model: Any) -> list[dict[str, Any]]:
    """One entry per known function in the files that define the model's layers."""
    files = {type(module).__module__ for module in model.modules()}
    found: dict[str, dict[str, Any]] = {}
    off = _config_says_no(model)
    for file in sorted(files):
        module = sys.modules.get(file)
        if module is None or file.startswith("torch."):
            continue
        for own_name, value in _globals(module).items():
            function = _kernel_name(value) or (own_name if own_name in FUNCTIONS else None)
            if function is not None and function not in found:
                found[function] = _entry(function, value, module, off)
    for module in model.modules():
        for function in FUNCTIONS:
            if function not in found and function in module.__dict__:
                home = sys.modules.get(type(module).__module__)
                found[function] = _entry(function, module.__dict__[function], home, off)
    return list(found.values())


def _config_says_no(model: Any) -> bool:
    """A setting such as `use_mamba_kernels: false` in the model's configuration."""
    for module in model.modules():
        config = getattr(module, "config", None)
        values = getattr(config, "__dict__", None) or {}
        if any("use" in key and "kernel" in key and value is False for key, value in values.items()):
            return True
    return False


def _globals(module: Any) -> dict[str, Any]:
    """Names of a modeling file, with the pair of convolutions that Mamba's one loaded late before 5.0."""
    found = dict(module.__dict__)
    late = found.get("_causal_conv1d_cache")
    if isinstance(late, tuple) and len(late) == 2:
        found["causal_conv1d_update"], found["causal_conv1d_fn"] = late
    return found


def _closed(module: Any) -> bool:
    """Whether the layers of this file take all fused kernels or none, and now take none."""
    names = _globals(module)
    for kind in list(module.__dict__.values()):
        if not isinstance(kind, type) or kind.__module__ != module.__name__:
            continue
        forward = kind.__dict__.get("forward")
        while hasattr(forward, "__wrapped__"):
            forward = forward.__wrapped__
        code = getattr(forward, "__code__", None)
        if code is None:
            continue
        if _FLAG in code.co_names and names.get(_FLAG, True) is False:
            return True
        used = (*code.co_names, *code.co_varnames)
        if _FLAG in code.co_varnames and any(n in FUNCTIONS and names.get(n) is None for n in used):
            return True
    return False


def _kernel_name(value: Any) -> str | None:
    """The kernel's name in transformers' registry: a fallback is often called otherwise in its file."""
    if not callable(value):
        return None
    cells = _wrapped(value)
    name = cells.get("func_name")
    if name is None and cells:  # a wrapper from before 5.17: it bears the name of the PyTorch code
        own = getattr(value, "__name__", None)
        name = REFERENCES.get(own, own if own in FUNCTIONS else None) if own else None
    return name if isinstance(name, str) else None


def _entry(name: str, value: Any, module: Any, off: bool) -> dict[str, Any]:
    cells = _wrapped(value)
    package = str(cells.get("package", name))
    role, package, distribution = FUNCTIONS.get(name, ("other", package, package))
    implementation, fallback = cells.get("implementation", value), cells.get("torch_function")
    home = getattr(implementation, "__module__", None) or ""
    fast = implementation is not None and implementation is not fallback and not _reference(home)
    if fast and module is not None and _closed(module):
        fast = False
    entry: dict[str, Any] = {
        "name": name,
        "role": role,
        "implementation": home if fast or implementation is not None else "none",
        "fast": fast,
        "package": distribution,
        "package_version": version(distribution),
        "reason": None,
        "error": None,
    }
    if not fast:
        error = import_error(package)
        if error is None:
            entry["reason"] = "switched-off" if off else "version"
        elif error == "" and hub_facts.switched_off() and importlib.util.find_spec("kernels") is not None:
            entry["reason"] = "switched-off"  # the hub would have brought it
        elif error == "":
            entry["reason"] = "absent"
        else:
            entry["reason"], entry["error"] = "broken", error
    return entry


def _reference(home: str) -> bool:
    return home.startswith("transformers.") or home.startswith("transformers_modules")


def _wrapped(value: Any) -> dict[str, Any]:
    """Variables of transformers' kernel wrapper (implementation, torch_function, ...), if this is one."""
    cells = _cells(value)
    if "implementation" in cells:
        return cells
    for inner in cells.values():
        found = _cells(inner) if callable(inner) else {}
        if "implementation" in found:
            return found
    return {}


def _cells(function: Any) -> dict[str, Any]:
    code, closure = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not closure:
        return {}
    found = {}
    for name, cell in zip(code.co_freevars, closure, strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except Exception:
        return None


def import_error(package: str) -> str | None:
    """None when it imports, "" when it is not installed, else the error its import raises."""
    if package not in _errors:
        _errors[package] = _try_import(package)
    return _errors[package]


def broken_packages() -> dict[str, str]:
    """Packages that are installed and whose import failed, with the error."""
    return {package: error for package, error in _errors.items() if error}


def _try_import(package: str) -> str | None:
    if package in sys.modules:
        return None
    try:
        if importlib.util.find_spec(package) is None:
            return ""
    except (ImportError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    try:
        importlib.import_module(package)
    except BaseException as error:
        from .redaction import clean

        return clean(f"{type(error).__name__}: {error}", 600)
    return None
