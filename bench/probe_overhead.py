"""What the observer costs: blocks of steps with its hooks on and off in turn, in one process.

python bench/probe_overhead.py [--mode timing] [--blocks 12] [--steps 8] [--batch 4] [--length 256]

Prints one JSON line: the summed time inside hooks over the time of the steps, and the median of the paired
block ratios with its spread. The hooks are the real ones, booted as in a job. In mode profile the looks at
the stack (and the shorter switch interval they need) are on and off together with the hooks; `--only-looks`
keeps the hooks on all the time. The ratio of the training thread's processor time holds on a busy machine,
too, where steps run on one thread (OMP_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

PROBE = Path(__file__).resolve().parents[1] / "autotune" / "probe"


def boot(folder: Path, mode: str, spent: dict[str, float] | None = None) -> None:
    """Load the observer under its private name, before torch, as the injected boot file does."""
    inject = folder / "inject"
    inject.mkdir(parents=True)
    settings = {"folder": str(folder), "mode": mode, "stop": "never", "protect": False}
    settings |= {"warmup_steps": 4, "steps": 10**9, "profile_ranks": []}
    (inject / "settings.json").write_text(json.dumps(settings))
    spec = spec_from_file_location(
        "_autotune_probe", PROBE / "__init__.py", submodule_search_locations=[str(PROBE)]
    )
    assert spec is not None and spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["_autotune_probe"] = package
    spec.loader.exec_module(package)
    from _autotune_probe import boot as boot_module  # type: ignore[import-not-found]
    from _autotune_probe import core as core_module

    if spent is not None:
        core_module.hook = _timed(core_module.hook, spent)
    boot_module.start(str(inject), False)


def _timed(hook: Any, spent: dict[str, float]) -> Any:
    """The same hook decorator, adding up each hook's own time."""

    def decorate(function: Any) -> Any:
        name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__qualname__}"

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] = spent.get(name, 0.0) + perf_counter() - start

        return hook(run)

    return decorate


class _Looks:
    """Switches the thread that looks at the stack, as the windows of a profiled run do."""

    def __init__(self, mode: str) -> None:
        from _autotune_probe import host_samples  # type: ignore[import-not-found]

        self._module = host_samples if mode == "profile" else None
        self.switch(False)
        self._before = self._counts()

    def switch(self, on: bool) -> None:
        if self._module is None:
            return
        if on:
            self._module.start()
        else:
            self._module.finish()
            self._module._thread = None

    def _counts(self) -> tuple[int, int]:
        return (self._module._taken, self._module._spent_ns) if self._module is not None else (0, 0)

    def told(self, on_s: float) -> dict[str, float]:
        if self._module is None:
            return {}
        taken, spent_ns = (now - before for now, before in zip(self._counts(), self._before, strict=True))
        return {"looks_per_s": round(taken / on_s, 1), "looks_frac": round(spent_ns / 1e9 / on_s, 5)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", default="timing", choices=["timing", "profile", "watch"])
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--steps", type=int, default=8, help="steps of a block")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only-looks", action="store_true", help="hooks stay on in every block")
    parser.add_argument("--detail", action="store_true", help="also the microseconds of each hook per step")
    args = parser.parse_args()
    spent: dict[str, float] | None = {} if args.detail else None
    with tempfile.TemporaryDirectory() as folder:
        boot(Path(folder) / "launch", args.mode, spent)
        print(json.dumps(measure(args, spent)))


def measure(args: argparse.Namespace, spent: dict[str, float] | None) -> dict[str, Any]:
    import torch
    from _autotune_probe.core import core  # type: ignore[import-not-found]
    from torch.utils.data import DataLoader
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=args.hidden,
        intermediate_size=3 * args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=6,
    )
    model = LlamaForCausalLM(config).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randint(1, 4096, (args.batch * (args.blocks + 2) * 2 * args.steps, args.length))
    rows = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in data]
    batches = iter(DataLoader(rows, batch_size=args.batch))

    def block() -> tuple[float, float]:
        if args.device != "cpu":
            torch.cuda.synchronize()
        start, cpu = perf_counter(), thread_time()
        for _ in range(args.steps):
            batch = {name: value.to(args.device) for name, value in next(batches).items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
        return perf_counter() - start, thread_time() - cpu

    block()
    block()  # both before timing: the first steps find the model and report it
    looks = _Looks(args.mode)
    if spent is not None:
        spent.clear()
    ratios, cpu_ratios, on_s, hook_s = [], [], 0.0, 0.0
    for number in range(args.blocks):
        times, cpu = {}, {}
        for active in (True, False) if number % 2 else (False, True):
            core.active = active or args.only_looks
            looks.switch(active)
            before = core.hook_ns
            times[active], cpu[active] = block()
            if active:
                on_s += times[True]
                hook_s += (core.hook_ns - before) / 1e9
        core.active = True
        looks.switch(False)
        ratios.append(times[True] / times[False])
        cpu_ratios.append(cpu[True] / cpu[False])
    step_ms = 1e3 * on_s / (args.blocks * args.steps)
    quartiles = statistics.quantiles(ratios, n=4)
    per_step = {} if spent is None else {
        name: round(1e6 * seconds / (args.blocks * args.steps), 1)
        for name, seconds in sorted(spent.items(), key=lambda item: -item[1])
    }  # fmt: skip
    return {
        "mode": args.mode,
        "device": args.device,
        "step_ms": round(step_ms, 3),
        "hook_ms_per_step": round(1e3 * hook_s / (args.blocks * args.steps), 4),
        "hook_frac": round(hook_s / on_s, 5),
        "on_over_off_median": round(statistics.median(ratios), 4),
        "on_over_off_quartiles": f"{quartiles[0]:.4f} .. {quartiles[2]:.4f}",
        "thread_cpu_on_over_off_median": round(statistics.median(cpu_ratios), 4),
        **looks.told(on_s),
        "blocks": args.blocks,
        "steps_per_block": args.steps,
        **({"hook_us_per_step": per_step} if spent is not None else {}),
    }


if __name__ == "__main__":
    main()
