"""What other versions of transformers do with fused kernels and packed rows, and what the probe sees of it.

    python bench/kernel_versions.py FOLDER [VERSION ...]  puts each version into FOLDER (pip), and measures it
    python bench/kernel_versions.py FOLDER --table        writes measured_in of packing_isolation.yaml
    python bench/kernel_versions.py FOLDER --write        writes the table in docs/compatibility.md

Tiny random models on the CPU, in a process for each version without any kernel package and in one with
stand-ins for them (bench/kernel_stand_ins.py). Leaks are measured as in bench/packing_isolation.py, with
the stand-ins, for those layers that reach them: before 5.15 most Mamba layers ask for a GPU first and are
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import textwrap
import types
import warnings
from collections.abc import Sequence
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
TABLE = ROOT / "rules" / "_tables" / "packing_isolation.yaml"
BEGIN, END = "<!-- kernels: made by bench/kernel_versions.py -->", "<!-- end of kernels -->"
VERSIONS = ("4.57.6", "5.0.0", "5.5.0", "5.10.1", "5.14.1", "5.15.0", "5.16.1", "5.17.0", "5.24.0")
# versions below -> what they want beside torch in another version than newer ones do
COMPANIONS = {(5, 0): ["huggingface-hub==0.36.2"], (5, 16): ["tokenizers==0.22.2"]}

_DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}  # fmt: skip
_CONV: dict[str, Any] = {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}
_MAMBA: dict[str, Any] = {
    "layer_types": None, "num_hidden_layers": 2, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8,
    "mamba_chunk_size": 16,
}  # fmt: skip
# model_type -> values of its tiny configuration
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_next": _DELTA,
    "qwen3_5_text": _DELTA,
    "qwen3_5_moe_text": _DELTA,
    "olmo_hybrid": _DELTA,
    "kimi_linear": {},
    "lfm2": _CONV,
    "lfm2_moe": {**_CONV, "num_dense_layers": 1},
    "bamba": {**_MAMBA, "attn_layer_indices": [1]},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 64, "head_dim": 8},
    "granitemoehybrid": {**_MAMBA, "layer_types": ["mamba", "attention"]},
    "nemotron_h": {
        "layer_types": None, "layers_block_type": ["mamba", "attention"], "num_hidden_layers": None,
        "mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1, "chunk_size": 16,
    },
    "zamba2": {
        "layer_types": None, "layers_block_type": ["mamba", "hybrid"], "num_hidden_layers": 2,
        "hybrid_layer_ids": [1], "num_mem_blocks": 1, "n_mamba_heads": 8, "mamba_headdim": 8,
        "mamba_d_state": 8, "mamba_ngroups": 1, "chunk_size": 16,
    },
    "mamba2": {
        "layer_types": None, "num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 16,
    },
    "mamba": {"layer_types": None, "state_size": 8},
    "falcon_mamba": {"layer_types": None, "state_size": 8},
}  # fmt: skip
_NO_SCAN = ("mamba", "falcon_mamba")  # their kernels are not stood in for
Verdicts = dict[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--inside", choices=["bare", "stand-ins", "dense", "shims"], help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.inside, options.only)))
        return 0
    if options.table:
        between(
            TABLE,
            "measured_in:",
            "# end of measured_in",
            as_table(results(options.folder)).partition("\n")[2],
        )
    elif options.write:
        between(PAGE, BEGIN, END, "\n".join(as_page(results(options.folder))))
    for version in () if options.table or options.write else options.versions or VERSIONS:
        found = {mode: run(options.folder, version, mode) for mode in ("bare", "stand-ins", "dense")}
        (options.folder / f"{version}.json").write_text(json.dumps(found, indent=1))
        print(version, "is measured")
    return 0


def between(file: Path, begin: str, end: str, lines: str) -> None:
    """Replace what stands between two marks, each at the start of a line."""
    head, _, rest = file.read_text(encoding="utf-8").partition(f"\n{begin}")
    tail = rest.partition(f"\n{end}")[2]
    file.write_text(f"{head}\n{begin}\n{lines}\n{end}{tail}", encoding="utf-8")


def put(folder: Path, version: str) -> Path:
    """The version's own files and companions; the interpreter's packages serve for the rest."""
    target = folder / version
    if not (target / "transformers").is_dir():
        wanted = [f"transformers=={version}"]
        for below, packages in COMPANIONS.items():
            wanted += packages if numbers(version) < below else []
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), *wanted]
        subprocess.run(pip, check=True)
    return target


def run(folder: Path, version: str, mode: str, only: Sequence[str] = ()) -> dict[str, Any]:
    """One process of that version: what measure() gives. The version that is installed needs no folder."""
    first = [] if version == installed("transformers") else [str(put(folder, version))]
    path = os.pathsep.join([*first, str(ROOT), str(ROOT / "bench")])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "ignore", __file__, str(folder), "--inside", mode]
    command += ["--only", *only] if only else []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{version}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["transformers"] != version:
        raise SystemExit(f"{version}: transformers {found['transformers']} was imported")
    return found


def measure(mode: str, only: Sequence[str] | None = None) -> dict[str, Any]:
    """In a process of one version: kernels and verdicts of every family, or what it raised."""
    import kernel_stand_ins

    if mode in ("stand-ins", "shims"):
        kernel_stand_ins.install()
    import transformers

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(60)
    families: dict[str, Any] = {}
    for family in dense_families() if mode == "dense" else FAMILIES:
        if (mode in ("stand-ins", "shims") and family in _NO_SCAN) or (only and family not in only):
            continue
        try:
            families[family] = {"dense": dense, "shims": shims}.get(mode, recurrent)(family)
        except Exception as fault:  # whatever a foreign model raises is its result
            families[family] = f"{type(fault).__name__}: {str(fault).splitlines()[0][:120]}"
    return {"transformers": transformers.__version__, "families": families}


def recurrent(family: str) -> dict[str, Any]:
    """Kernels as the probe reports them, and the verdict for each set of boundaries."""
    import kernel_stand_ins
    from packing_isolation import LEVELS, leak, small_model

    from autotune.probe import kernel_facts

    attention = "eager" if "mamba" in family and family != "zamba2" else "sdpa"
    model = small_model(family, attention, **FAMILIES[family])
    kernels = {k["name"]: k["fast"] for k in kernel_facts.collect(model) if k["role"] != "other"}
    verdicts: Verdicts = {}
    for level in LEVELS:
        try:
            change = leak(model, level=level)
        except (TypeError, ValueError, RuntimeError):  # NotImplementedError among them
            continue
        verdicts[level] = "isolated" if change <= (1e-6 if "moe" in family else 0.0) else "leaks"
    reached = "fla" not in sys.modules or bool(kernel_stand_ins.calls)
    kernel_stand_ins.calls.clear()
    return {"kernels": kernels, "verdicts": verdicts if reached else {}}


def shims(family: str) -> dict[str, float | str]:
    """A packing patch's modules with stand-ins: loss and gradients against single examples, leak."""
    import torch
    from packing_isolation import small_model

    from autotune.apply.shims import render_shim

    made = {}
    for name in ("packed_attention", "packed_batches"):
        made[name] = sys.modules[f"autotune_{name}"] = types.ModuleType(f"autotune_{name}")
        exec(compile(render_shim(f"shims/{name}.py.j2", {}), name, "exec"), made[name].__dict__)
    model = small_model(
        family, "eager" if "mamba" in family and family != "zamba2" else "sdpa", **FAMILIES[family]
    )
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(3, 120, (n,), generator=generator) for n in (7, 12, 5)]

    def gradients(loss: Any) -> Any:
        model.zero_grad()
        loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    count = sum(len(row) - 1 for row in rows)
    alone = [model(input_ids=row[None], use_cache=False).logits[0, :-1].float() for row in rows]
    loss = sum(
        torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum")
        for logits, row in zip(alone, rows, strict=True)
    )
    single, before = gradients(loss / count), float(loss) / count
    made["packed_batches"].attend_per_example(model)

    def collate(given: Any) -> dict[str, Any]:
        ids = torch.nn.utils.rnn.pad_sequence(given, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in given], batch_first=True)
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

    flatten = made["packed_batches"].flatten(collate)
    out = model(**flatten(rows))
    packed = gradients(out.loss)
    other = model(**flatten([rows[0].flip(0), *rows[1:]])).logits
    return {
        "attention": model.config.get_text_config()._attn_implementation,
        "loss_change": abs(float(out.loss) - before),
        "gradient_change": float((packed - single).abs().max() / single.abs().max()),
        "leak": float((other - out.logits)[:, 7:].abs().max() / out.logits.abs().max()),
    }


def levels() -> dict[str, tuple[str, ...]]:
    """What each column of the table passes beside position_ids."""
    from packing_isolation import LEVELS

    return LEVELS


def dense_families() -> list[str]:
    """Families of the isolation table with softmax attention only."""
    return sorted(name for name, row in table()["families"].items() if "dense" in row)


def dense(family: str) -> str:
    """The verdict of a family by the limits of tests/rules/test_packing_measured.py."""
    from packing_isolation import measure as leaks_of

    try:
        found = leaks_of(family)
    except ValueError as fault:
        if "attention implementation" not in str(fault):
            raise
        found = leaks_of(family, "eager")
    values = (found.position_ids, found.everything, found.two_rows)
    if None in values or found.with_mask is None:
        return "unknown"
    most = 1e-6 if "moe" in family or family in ("flex_olmo", "mixtral") else 0.0
    if all(value <= most for value in values):
        return "isolated"
    return "leaks" if found.position_ids > 1e-4 else "unknown"


def table() -> dict[str, Any]:
    import yaml

    loaded: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return loaded


def results(folder: Path) -> dict[str, Any]:
    found = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    return dict(sorted(found.items(), key=lambda item: numbers(item[0])))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def expected(row: dict[str, Any], level: str) -> str | None:
    columns = row.get("fast", {})
    verdict: str | None = columns.get(level, columns.get("any"))
    return verdict


def fast_rows(found: dict[str, Any]) -> dict[str, Verdicts]:
    """Verdicts with fused kernels, under the table's names."""
    rows = {}
    plain = found["bare"]["families"]
    for family, seen in found["stand-ins"]["families"].items():
        if not isinstance(plain[family], dict) or set(plain[family]["verdicts"].values()) != {"leaks"}:
            continue  # every row of the table says that the PyTorch code leaks
        if isinstance(seen, dict) and {"pos", "seq_idx", "cu", "all"} <= set(seen["verdicts"]):
            verdicts = dict(seen["verdicts"])
            if verdicts["all"] == "isolated" or verdicts.get("all_plus_cu_seqlens") != "isolated":
                verdicts.pop("all_plus_cu_seqlens", None)
            rows[family.removesuffix("_text")] = verdicts
    return rows


def as_table(found: dict[str, Any]) -> str:
    """The section measured_in of the isolation table."""
    known, lines = table()["families"], ["measured_in:"]
    for version, seen in found.items():
        if numbers(version)[:2] >= numbers(table()["transformers"]):
            continue  # the rows themselves, and same_verdicts_in
        dense_seen = seen["dense"]["families"]
        same = [name for name, verdict in dense_seen.items() if verdict == dense_verdict(known[name])]
        other = []
        for name, verdict in dense_seen.items():
            if verdict == "leaks" != dense_verdict(known[name]):
                other.append(f"{name}: {{dense: {{any: leaks}}}}")
        for name, verdicts in fast_rows(seen).items():
            if all(expected(known[name], level) == verdict for level, verdict in verdicts.items()):
                same.append(name)
            else:
                one = set(verdicts.values()) == {"leaks"}
                columns = "any: leaks" if one else ", ".join(f"{k}: {v}" for k, v in verdicts.items())
                other.append(f"{name}: {{fallback: {{any: leaks}}, fast: {{{columns}}}}}")
        minor = ".".join(version.split(".")[:2])
        names = textwrap.wrap(", ".join(sorted(same)), 110, break_on_hyphens=False)
        lines += [f'  "{minor}":', "    same: [", *(f"      {line}" for line in names), "    ]"]
        lines += ["    other:" + ("" if other else " {}"), *(f"      {row}" for row in sorted(other))]
    return "\n".join(lines)


def dense_verdict(row: dict[str, Any]) -> str:
    columns = row["dense"]
    verdict: str = columns.get("any", columns.get("pos"))
    return verdict


def as_page(found: dict[str, Any]) -> list[str]:
    lines = [
        "| transformers | families | seen without packages | seen with stand-ins |"
        " packed rows stay apart | of softmax families |",
        "|---|---|---|---|---|---|",
    ]
    for version, seen in found.items():
        bare, stand = (
            {k: v for k, v in seen[mode]["families"].items() if isinstance(v, dict)}
            for mode in ("bare", "stand-ins")
        )
        slow = sum(bool(v["kernels"]) and not any(v["kernels"].values()) for v in bare.values())
        fast = sum(bool(v["kernels"]) and all(v["kernels"].values()) for v in stand.values())
        rows = fast_rows(seen)
        apart = [n for n, v in rows.items() if "isolated" in (v["all"], v.get("all_plus_cu_seqlens"))]
        leaking = [n for n in rows if n not in apart]
        words = ", ".join(apart) or "none"
        words += f"; not: {', '.join(leaking)}" if leaking else ""
        verdicts = [v for v in seen["dense"]["families"].values() if v in ("isolated", "leaks", "unknown")]
        lines.append(
            f"| {version} | {len(bare)} | {slow} fall back | {fast} of {len(stand)} fused | {words} |"
            f" {verdicts.count('isolated')} of {len(verdicts)} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
