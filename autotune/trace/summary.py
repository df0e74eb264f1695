"""Trace files in, one record of everything they say out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.records.trace import RankTrace, TraceFile, TraceSummary, TraceWarning
from autotune.trace.attention import attention_facts, convolution_facts, linear_attention_facts
from autotune.trace.classes import load_kernel_table
from autotune.trace.collective_calls import collective_calls
from autotune.trace.columns import Gpu, Host, Trace
from autotune.trace.communication import communication, fsdp_units
from autotune.trace.context import Context, prepare
from autotune.trace.critical_path import critical_path
from autotune.trace.device import dtype_peaks, find_device
from autotune.trace.flops import flop_facts, gemm_times
from autotune.trace.gpu_time import class_times, gpu_time, streams, unclassified
from autotune.trace.halves import read, usable_cores
from autotune.trace.host_facts import compile_facts, copies, cpu_time, data_loading, memory_facts
from autotune.trace.launches import idle_causes, launch_facts
from autotune.trace.loss_head import loss_head
from autotune.trace.modules import module_rows
from autotune.trace.optimizer import optimizer_facts
from autotune.trace.ranks import RankCollectives, align, rank_collectives
from autotune.trace.regions import find_recompute, find_regions, region_times
from autotune.trace.roofline import roofline
from autotune.trace.steps import find_steps
from autotune.trace.syncs import sync_facts
from autotune.trace.tables import founding_tables
from autotune.trace.validity import Judged, judge

_TOGETHER_S = 600.0  # clocks of hosts differ by less, ranks of one job start profiling within seconds
_PARALLEL_BYTES = 4 << 20  # smaller sets are read faster than processes start


def summarize(paths: Sequence[Path], *, tables_dir: Path, processes: int | None = None) -> TraceSummary:
    """Read trace files of one job and derive everything from them.

    `tables_dir` holds the lookup tables (`rules/_tables`). Several files are read in parallel processes
    (`processes`; by default as many as there are files and CPUs, one for small sets). Raises InputError
    for files that cannot be trusted at all: missing, truncated, damaged, foreign.
    """
    found = _read_all(list(paths), tables_dir, processes)
    ranks = sorted((item for item, _ in found), key=_order)
    cross = align(_numbered([part for _, part in found])) if len(found) > 1 else None
    return TraceSummary(ranks=ranks, cross_rank=cross, warnings=_about_set(ranks))


def _order(item: RankTrace) -> tuple[bool, int, str]:
    return item.rank is None, item.rank or 0, item.file.name


def _read_all(
    paths: list[Path], tables_dir: Path, processes: int | None
) -> list[tuple[RankTrace, RankCollectives]]:
    if processes is None and len(paths) == 1:
        return [_read_rank(paths[0], tables_dir)]
    if processes is None:
        big = len(paths) > 1 and sum(path.stat().st_size for path in paths if path.exists()) > _PARALLEL_BYTES
        processes = min(len(paths), usable_cores()) if big else 1
    if processes <= 1 or len(paths) <= 1:
        own = processes if len(paths) == 1 else 1
        return [_read_rank(path, tables_dir, own) for path in paths]
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
    from multiprocessing import get_context

    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            return list(pool.map(_read_rank, paths, [tables_dir] * len(paths), [1] * len(paths)))
    except (BrokenExecutor, MemoryError, OSError, ImportError):
        # One was killed (mostly for memory; one at a time needs less), or none can start (no /dev/shm).
        return [_read_rank(path, tables_dir, 1) for path in paths]


def _numbered(parts: list[RankCollectives]) -> list[RankCollectives]:
    """Ranks by number; by position where the traces do not say."""
    if any(part.rank < 0 for part in parts):
        return [replace(part, rank=index) for index, part in enumerate(parts)]
    return parts


def _read_rank(
    path: Path, tables_dir: Path, processes: int | None = None
) -> tuple[RankTrace, RankCollectives]:
    context = prepare(read(path, processes=processes), load_kernel_table(tables_dir))
    item = derive(context, path.name, tables_dir)
    rank = item.rank if item.rank is not None else -1
    return item, rank_collectives(context, collective_calls(context), rank)


def summarize_rank(path: Path, *, tables_dir: Path) -> RankTrace:
    """Everything one trace file says."""
    return _read_rank(path, tables_dir)[0]


def derive(context: Context, name: str, tables_dir: Path) -> RankTrace:
    """The record of one prepared trace."""
    trace = context.trace
    regions = find_regions(context)
    steps, gpu, launch = find_steps(context), gpu_time(context), launch_facts(context)
    calls = collective_calls(context)
    comm = communication(context, calls)
    device = find_device(context, tables_dir)
    share, names = unclassified(context)
    rank, world, backend = _distributed(trace)
    return RankTrace(
        file=_file(trace, name),
        validity=judge(Judged(context, regions, steps, gpu, launch, comm)),
        rank=rank,
        world_size=world,
        backend=backend,
        device=device,
        steps=steps,
        gpu=gpu,
        idle=idle_causes(context),
        classes=class_times(context),
        unclassified_frac=share,
        unclassified_kernels=names,
        tables=founding_tables(context),
        launch=launch,
        syncs=sync_facts(context),
        communication=comm,
        streams=streams(context),
        regions=region_times(context, regions),
        recompute=find_recompute(context, regions),
        attention=attention_facts(context),
        linear_attention=linear_attention_facts(context),
        convolution=convolution_facts(context),
        optimizer=optimizer_facts(context),
        gemm=gemm_times(context),
        flops=flop_facts(context, dtype_peaks(device), gpu.busy_ms if gpu is not None else None),
        data_loading=data_loading(context),
        copies=copies(context),
        compile=compile_facts(context),
        cpu=cpu_time(context),
        memory=memory_facts(context),
        loss_head=loss_head(context),
        critical_path=critical_path(context),
        roofline=roofline(context, device),
        fsdp_units=fsdp_units(context, calls),
        modules=module_rows(context),
    )


def _distributed(trace: Trace) -> tuple[int | None, int | None, str | None]:
    info = trace.metadata.get("distributedInfo")
    if not isinstance(info, dict):
        return None, None, None
    rank, world, backend = info.get("rank"), info.get("world_size"), info.get("backend")
    return (
        rank if isinstance(rank, int) else None,
        world if isinstance(world, int) else None,
        backend if isinstance(backend, str) else None,
    )


def _file(trace: Trace, name: str) -> TraceFile:
    gpu = trace.gpu
    by_category = {
        category: count for (phase, category), count in sorted(trace.counts.items()) if phase == "X"
    }
    return TraceFile(
        name=name,
        plain_bytes=trace.plain_bytes,
        events=trace.event_count,
        events_by_category=by_category,
        kernels=int((gpu.kind == Gpu.KERNEL).sum()),
        memcpys=int((gpu.kind == Gpu.MEMCPY).sum()),
        memsets=int((gpu.kind == Gpu.MEMSET).sum()),
        cpu_ops=int((trace.host.kind == Host.OP).sum()),
        has_shapes=any(shape.dims for shape in trace.shapes),
        has_python_stacks=by_category.get("python_function", 0) > 0,
        has_flow_events=any(phase in ("s", "f") for phase, _ in trace.counts),
        start_unix_ns=trace.wall_ns if trace.wall_ns > 10**18 else None,
    )


def _about_set(ranks: list[RankTrace]) -> list[TraceWarning]:
    """What is odd about several files together."""
    found = []
    numbers = [item.rank for item in ranks if item.rank is not None]
    worlds = sorted({item.world_size for item in ranks if item.world_size is not None})
    if len(numbers) != len(set(numbers)):
        found.append(
            _caution("same_rank_twice", "two files carry the same rank number: ranks are not compared")
        )
    if len(worlds) > 1:
        found.append(_caution("different_jobs", f"world sizes differ: {worlds}"))
    odd = [
        item for item in ranks if item.rank is not None and not 0 <= item.rank < (item.world_size or 2**62)
    ]
    if odd:
        text = f"{odd[0].file.name} says it is rank {odd[0].rank} of {odd[0].world_size}"
        found.append(_caution("rank_out_of_range", text))
    backends = sorted({item.backend for item in ranks if item.backend is not None})
    if len(backends) > 1:
        found.append(_caution("different_jobs", f"backends differ: {', '.join(backends)}"))
    starts = [item.file.start_unix_ns for item in ranks if item.file.start_unix_ns is not None]
    apart_s = (max(starts) - min(starts)) / 1e9 if starts else 0.0
    if apart_s > _TOGETHER_S:
        text = (
            f"the files were recorded up to {apart_s / 60:,.0f} minutes apart: not the same steps of one job"
        )
        found.append(_caution("recorded_apart", text))
    if len(ranks) > 1 and worlds and worlds[-1] > len(ranks):
        text = f"{worlds[-1] - len(ranks)} of {worlds[-1]} ranks are not here"
        found.append(TraceWarning(code="ranks_missing", severity="info", text=text))
    return found


def _caution(code: str, text: str) -> TraceWarning:
    return TraceWarning(code=code, severity="caution", text=text)
