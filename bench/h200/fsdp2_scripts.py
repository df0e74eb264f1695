"""Render the generated script for the GPU measurement, and read what its variants did.

    python fsdp2_scripts.py weights SIZE FOLDER     # FOLDER/model, random weights for all variants
    python fsdp2_scripts.py render SIZE FOLDER      # plain.py without, full.py with recomputation
    python fsdp2_scripts.py table FOLDER            # FOLDER/<variant>/metrics.jsonl side by side
    python fsdp2_scripts.py profile SCRIPT TRACE [options of the script]   # one profiled step, under torchrun
    python fsdp2_scripts.py drawn SCRIPT [options]   # random weights drawn on the GPU, under torchrun

SIZE 2.4b and 27b are the hybrids of docs/h200.md (they need the fused kernels), tiny a dense model that runs
on a CPU. 27b is for two GPUs, with bf16 master weights, recomputation and `ROW_TOKENS` (4,096) tokens a row;
its script holds the config alone, and `drawn` saves the minutes that a CPU takes to draw 27 billion numbers.
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
from pathlib import Path
from typing import Any, Literal

WARMUP, MEASURED = 8, 12
HYBRID = {
    "model_type": "qwen3_5_text", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320,
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
LARGE = HYBRID | {
    "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24,
    "num_key_value_heads": 4, "linear_num_value_heads": 48,
}  # fmt: skip
TINY = {
    "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512,
    "tie_word_embeddings": False,
}  # fmt: skip


def weights(size: str, folder: Path) -> None:
    """A model folder with random weights; making them on the CPU would take most of a variant's start."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(**(TINY if size == "tiny" else HYBRID))
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder / "model")


def render(size: str, folder: Path) -> None:
    from autotune.apply.packing_gate import packing_decision
    from autotune.apply.script import render_script
    from autotune.data import data_dir
    from autotune.records import script as parts

    tiny, large = size == "tiny", size == "27b"
    config, row = (TINY, 256) if tiny else (HYBRID, 8192)
    if large:
        config, row = LARGE, int(os.environ.get("ROW_TOKENS", "4096"))
    longest = row
    hook = {"count": 200 if tiny else 600, "vocabulary": config["vocab_size"], "longest": longest}
    if tiny:
        hook |= {"mean": 4.0}
    implementation: Literal["dense", "fast"] = "dense" if tiny else "fast"
    packing = packing_decision(
        str(config["model_type"]), implementation, "5.17.0", parts.PackingContext(row_tokens=row)
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, checkpointing in (("plain", "none"), ("full", "full")):
        context = parts.ScriptContext(
            file_name=f"{name}.py",
            model=parts.ModelContext(config=dict(config), weights="random")
            if large
            else parts.ModelContext(path=str(folder.resolve() / "model"), family=str(config["model_type"])),
            data=parts.DataContext(
                source=f"{Path(__file__).with_name('random_rows.py')}:Rows",
                kind="tokens",
                hook_arguments=hook,
                long_examples="truncate",
            ),
            packing=packing_decision(
                str(config["model_type"]), "dense" if tiny else "fast", "5.17.0", packing
            ),
            batch=parts.BatchContext(rows_per_step=2 if large else 1),
            memory=parts.MemoryContext(
                checkpointing=checkpointing,  # type: ignore[arg-type]
                compile="parts",
                compile_on="cpu" if tiny else "cuda",
            ),
            precision=parts.PrecisionContext(
                compute="float32" if tiny else "bfloat16",
                master="bfloat16" if large else "float32",
                reduce="bfloat16" if large else "float32",
            ),
            optimizer=parts.OptimizerContext(
                schedule="constant", learning_rate=1e-5, max_steps=WARMUP + MEASURED
            ),
            run=parts.RunContext(log_every=1, save_every=0, export=False, peak_tflops=0.1 if tiny else 790),
        )
        (folder / f"{name}.py").write_text(render_script(context, data_dir("templates")))


def table(folder: Path) -> int:
    """One row a variant; losses of the same steps against those of the first variant."""
    logs: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("*/metrics.jsonl"), key=lambda f: f.stat().st_mtime):
        if file.parent.name == "profile":
            continue
        logs[file.parent.name] = [json.loads(line) for line in file.read_text().splitlines()]
    if not logs:
        print("no variant came to its first step")
        return 1
    first = next(iter(logs.values()))
    print("| variant | useful tokens/s | ms a step | MFU | peak GiB | loss, last step | furthest loss |")
    print("|---|---|---|---|---|---|---|")
    for name, steps in logs.items():
        timed = steps[WARMUP:]
        apart = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(steps, first, strict=False))
        if not timed:
            print(
                f"| {name} | only {len(steps)} steps | | | | {steps[-1]['loss']:.4f} | {100 * apart:.3f} % |"
            )
            continue
        middle = {k: statistics.median(s[k] for s in timed if k in s) for k in timed[0]}
        peak = f"{max(s.get('peak_gib', 0.0) for s in steps):.1f}" if "peak_gib" in middle else "-"
        print(
            f"| {name} | {middle['useful_tokens_per_s']:,.0f} | {middle['step_ms']:.0f} | "
            f"{100 * middle['mfu_frac']:.1f} % | {peak} | {steps[-1]['loss']:.4f} | {100 * apart:.3f} % |"
        )
    print(f"medians of {MEASURED} steps after {WARMUP}; furthest loss: against the first variant")
    return 0


def profile(script: str, trace: str, words: list[str]) -> None:
    """Run the script with its step after the warm-up profiled."""
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    profiler = torch.profiler.profile(activities=activities, record_shapes=True)
    step, done = torch.optim.AdamW.step, [0]

    def counted(optimizer: Any, *given: Any, **named: Any) -> Any:
        out = step(optimizer, *given, **named)
        done[0] += 1
        if done[0] == WARMUP:
            profiler.start()
        elif done[0] == WARMUP + 1:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            profiler.stop()
            profiler.export_chrome_trace(trace)
        return out

    torch.optim.AdamW.step = counted  # type: ignore[method-assign]
    sys.argv = [script, *words, "--max-steps", str(WARMUP + 3)]
    runpy.run_path(script, run_name="__main__")


def drawn(script: str, words: list[str]) -> None:
    """Run the script, its random weights drawn on this rank's GPU."""
    import torch
    import transformers

    original = transformers.AutoModelForCausalLM.from_config

    def from_config(*given: Any, **named: Any) -> Any:
        with torch.device("cuda", int(os.environ["LOCAL_RANK"])):
            return original(*given, **named)

    transformers.AutoModelForCausalLM.from_config = from_config
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "weights":
        weights(rest[0], Path(rest[1]))
    elif verb == "render":
        render(rest[0], Path(rest[1]))
    elif verb == "drawn":
        drawn(rest[0], rest[1:])
    elif verb == "profile":
        profile(rest[0], rest[1], rest[2:])
    else:
        sys.exit(table(Path(rest[0])))
