"""What is reported besides the steps: at the first boundaries, at window changes, and at the end."""

from __future__ import annotations

import hashlib
import os
import resource
import sys
from typing import Any

from . import (
    checkpoint_facts,
    compile_watch,
    environment,
    flag_facts,
    forward_calls,
    group_facts,
    hook_calls,
    hook_loader,
    models,
    optimizer_facts,
    recipe,
    sharding_facts,
    sites,
    tracing,
)
from .core import core
from .steps import steps

_DESCENTS = 3  # levels of wrappers below which the called model is looked for


def at_boundary(index: int, window_began: bool, done: bool) -> None:
    """`index` steps have ended; `window_began`: or a stretch of a watched run is over; `done`: the job is
    stopped right after this.

    Inside a window nothing is reported besides the steps, so that no timed step pays for it.
    """
    torch: Any = sys.modules["torch"]
    forward_calls.poll()
    if index <= _DESCENTS:
        forward_calls.descend(torch)
    if index == 1:
        fingerprint()
    if index in (1, 3) or done:
        whole(torch)
    if index == 1:
        environment.report()
    if done:
        _recipe()
    if index in (1, 2) or window_began or done:
        growing()


def at_end() -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None and models.root() is not None:
        whole(torch)
        _recipe()
    growing()


def _recipe() -> None:
    """Only when the training is over: reading an example may draw random numbers."""
    if core.settings.full and core.rank is not None and core.rank.rank == 0:
        try:
            recipe.emit(steps.training_loaders)
        except Exception:
            core.sink.fault("recipe")


def whole(torch: Any) -> None:
    """Facts of the model and what is around it; each guarded, one that fails leaves the others."""
    root = models.root()
    parts: list[tuple[str, Any]] = [
        ("model", lambda: models.emit_facts(torch)),
        ("sharding", lambda: core.emit("sharding", sharding_facts.collect(root))),
        ("process groups", _groups),
        ("checkpointing", lambda: core.emit("checkpointing", checkpoint_facts.collect())),
        ("flags", lambda: core.emit("flags", flag_facts.collect(torch, tracing.running()))),
        ("optimizers", _optimizers),
    ]
    for name, part in parts:
        try:
            part()
        except Exception:
            core.sink.fault(f"facts of {name}")


def _groups() -> None:
    groups = group_facts.collect()
    if groups:
        core.emit("process_groups", {"groups": groups})


def _optimizers() -> None:
    for number, optimizer in enumerate(models.optimizers()):
        core.emit("optimizer", optimizer_facts.collect(number, optimizer))


def growing() -> None:
    """Counts and peaks, sent again so that a killed job leaves recent ones."""
    memory()
    hook_loader.report()
    sites.report_counts()
    compile_watch.reasons()
    values = {**hook_calls.counts, **compile_watch.counters()}
    reads: Any = sys.modules.get(f"{__package__}.hook_reads")
    if reads is not None:
        values["device_reads"] = float(reads.reads)
        values["device_read_ms"] = round(reads.wait_ns / 1e6, 4)
    if steps.unstepped:
        values["backwards_without_update"] = float(steps.unstepped)
    core.emit("counters", {"values": values})


def memory() -> None:
    torch: Any = sys.modules.get("torch")
    # Linux gives KiB, macOS bytes
    unit = 1 if sys.platform == "darwin" else 1024
    found: dict[str, Any] = {"host_peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    found["host_bytes"] = environment.host_bytes()
    try:
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            stats = torch.cuda.memory_stats()
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            found["device_bytes"] = properties.total_memory
            found["peak_allocated_bytes"] = stats.get("allocated_bytes.all.peak")
            found["peak_reserved_bytes"] = stats.get("reserved_bytes.all.peak")
            probe: Any = sys.modules.get(f"{__package__}.block_memory")
            if probe is not None:
                found.update(probe.largest())
            found["allocator_retries"] = stats.get("num_alloc_retries")
            found["out_of_memory"] = bool(stats.get("num_ooms", 0))
    except Exception:
        core.sink.fault("memory")
    core.emit("memory", found)


def fingerprint() -> None:
    """Digest of the files the parent asked about, as this process has them loaded.

    sha256 of one line per file in path order, each the file's sha256; nothing is sent when none was loaded.
    """
    if not core.settings.fingerprint_files:
        return
    loaded = {
        os.path.realpath(path)
        for module in list(sys.modules.values())
        if isinstance(path := getattr(module, "__file__", None), str)
    }
    paths = sorted(core.settings.fingerprint_files)
    found = [sites.digest(path) if os.path.realpath(path) in loaded else "not loaded" for path in paths]
    if any(digest != "not loaded" for digest in found):
        text = "".join(f"{digest}\n" for digest in found)
        core.emit("fingerprint", {"digest": hashlib.sha256(text.encode()).hexdigest()})
