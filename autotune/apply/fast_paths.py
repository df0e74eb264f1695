"""Prove on this machine that each fast path of a model runs forward and backward, at the model's sizes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from autotune.data import data_dir
from autotune.errors import InputError
from autotune.records.doctor import Check

_DEADLINE_S = 900  # the first use of a kernel compiles it
_STATES: dict[str, Any] = {"live": "ok", "absent": "unknown", "not here": "unknown"}


def sizes_of(config: Mapping[str, Any], dtype: str = "bfloat16") -> dict[str, Any]:
    """Sizes of the parts that have a fast path, from a model's configuration; a part it lacks is left out."""
    text = config.get("text_config")
    values = {**config, **text} if isinstance(text, Mapping) else dict(config)
    out: dict[str, Any] = {"dtype": dtype}
    heads, hidden = _int(values, "num_attention_heads"), _int(values, "hidden_size")
    if heads:
        head_dim = _int(values, "head_dim") or (hidden // heads if hidden else 0)
        if head_dim:
            kv_heads = _int(values, "num_key_value_heads") or heads
            out["attention"] = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    value_heads, key_heads = _int(values, "linear_num_value_heads"), _int(values, "linear_num_key_heads")
    key_dim, value_dim = _int(values, "linear_key_head_dim"), _int(values, "linear_value_head_dim")
    if value_heads and key_heads and key_dim and value_dim:
        out["gated_delta_rule"] = {"heads": value_heads, "key_dim": key_dim, "value_dim": value_dim}
        channels = 2 * key_heads * key_dim + value_heads * value_dim
        width = _int(values, "linear_conv_kernel_dim") or 4
        out["causal_conv"] = {"channels": channels, "width": width}
    out |= _state_space(values)
    if hidden and (inner := _int(values, "intermediate_size")):
        eps = next((values[n] for n in ("rms_norm_eps", "layer_norm_epsilon") if n in values), 1e-6)
        out["fused_layers"] = {"hidden": hidden, "intermediate": inner, "eps": float(eps)}
    if hidden and (vocabulary := _int(values, "vocab_size")):
        out["loss_head"] = {"hidden": hidden, "vocabulary": vocabulary}
    return out


# what families call the sizes of their Mamba 2 layers
_STATE_SPACE = {
    "heads": ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads"),
    "head_dim": ("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim"),
    "groups": ("mamba_n_groups", "mamba_ngroups", "n_groups"),
    "state": ("mamba_d_state", "ssm_state_size", "state_size"),
}


def _state_space(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of Mamba 2 layers and of the convolution before them; nothing where the family has none."""
    sizes = {
        name: next((n for word in words if (n := _int(values, word))), 0)
        for name, words in _STATE_SPACE.items()
    }
    if not all(sizes.values()) or not any(word.startswith(("mamba", "ssm", "state")) for word in values):
        return {}
    width = _int(values, "mamba_d_conv") or _int(values, "conv_kernel") or 4
    channels = sizes["heads"] * sizes["head_dim"] + 2 * sizes["groups"] * sizes["state"]
    return {"state_space": sizes, "causal_conv": {"channels": channels, "width": width}}


def prove(interpreter: str, sizes: Mapping[str, Any]) -> list[Check]:
    """A check for every fast path there could be. Raises InputError when the interpreter does not answer."""
    program = data_dir("templates") / "checks" / "fast_paths.py"
    try:
        done = subprocess.run(
            [interpreter, str(program)],
            input=json.dumps(sizes),
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise InputError(
            f"the fast paths were not tried: {fault}", where=interpreter, code="interpreter-silent"
        ) from None
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        raise InputError(
            f"the fast paths were not tried: {last[0]}", where=interpreter, code="interpreter-silent"
        )
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    checks = [
        Check(
            name="fast paths", state="ok", detail=f"tried on {answer['device']} with torch {answer['torch']}"
        )
    ]
    for path in answer["paths"]:
        name = f"{path['path']} by {path['by']}"
        state = _STATES.get(path["state"], "warning")
        checks.append(Check(name=name, state=state, detail=f"{path['state']}: {path['detail']}"))
    return checks


def _int(values: Mapping[str, Any], name: str) -> int:
    found = values.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0
