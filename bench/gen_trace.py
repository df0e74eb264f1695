"""Write synthetic Kineto traces with known truth.

    python bench/gen_trace.py step  --out big.json [--kernels 269448]
    python bench/gen_trace.py fsdp2 --out DIR [--ranks 4] [--layers 12] [--late-rank 2] [--late-us 900]

`step` has the op mix of a launch-bound fine-tuning step (1,714,381 CPU-side calls and 269,448 kernels at
full size, 0.9 GB). `fsdp2` writes one file per rank of an FSDP2 step with planted overlap, clock offsets
and a late rank. Beside the traces lies `planted.json`: the truth, computed here on plain integers and
independently of the engine. A suffix `.gz` compresses.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

BASE_NS = 1_790_857_026_000_000_000
PID, MAIN, BACKWARD = 4321, 4321, 4400
STRIDES = "[[262144, 8192, 128, 1], [262144, 8192, 128, 1]]"
CALLS_PER_KERNEL = 1_444_933 / 269_448

# name of the op chain (outermost first), kernel, its class in rules/_tables, duration in ns, dims, types
Pattern = tuple[tuple[str, ...], str, str, int, str, str]
MULTIPLY = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor"
    "<float, float, float, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, "
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > const&)"
    "::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast)"
)
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
SUM = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float> >, unsigned int, float, 4, 4> >(at::native::ReduceOp)"
)
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}>(int)"
)
SMALL = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_ffma_execute_kernel__5x_cublas"
WIDE = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
TALL = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"
FLOATS, HALVES = '["float", "float"]', '["c10::BFloat16", "c10::BFloat16"]'
ROWS, TILES = "[[4, 32, 64, 128], [4, 32, 64, 1]]", "[[128, 64, 64], [128, 64, 128]]"
NODE = "autograd::engine::evaluate_function: "
FORWARD: tuple[Pattern, ...] = (
    (
        ("aten::linear", "aten::matmul", "aten::mm"),
        WIDE,
        "gemm",
        21_400,
        "[[8192, 2048], [2048, 2048]]",
        HALVES,
    ),
    (("aten::mul",), MULTIPLY, "elementwise", 4_288, ROWS, FLOATS),
    (("aten::add",), ADD, "elementwise", 3_904, ROWS, FLOATS),
    (("aten::matmul", "aten::bmm"), SMALL, "gemm", 8_800, TILES, FLOATS),
    (("aten::sum",), SUM, "reduction", 5_056, ROWS, FLOATS),
    (("aten::to", "aten::_to_copy", "aten::copy_"), CAST, "elementwise", 6_112, ROWS, FLOATS),
)
BACKWARDS: tuple[Pattern, ...] = (
    (
        (f"{NODE}MmBackward0", "MmBackward0", "aten::mm"),
        TALL,
        "gemm",
        24_900,
        "[[2048, 8192], [8192, 9]]",
        HALVES,
    ),
    ((f"{NODE}MulBackward0", "MulBackward0", "aten::mul"), MULTIPLY, "elementwise", 4_640, ROWS, FLOATS),
    ((f"{NODE}BmmBackward0", "BmmBackward0", "aten::bmm"), SMALL, "gemm", 9_216, TILES, FLOATS),
    ((f"{NODE}AddBackward0", "AddBackward0", "aten::add_"), ADD, "elementwise", 4_096, ROWS, FLOATS),
)


class Writer:
    """Writes events in Kineto's own layout and counts them."""

    def __init__(self, path: Path, rank: int = 0, world: int = 1) -> None:
        packed = path.suffix == ".gz"
        self.out: IO[str] = gzip.open(path, "wt", compresslevel=6) if packed else path.open("w")  # noqa: SIM115
        self.events = 0
        self.counts: dict[str, int] = {}
        self.buffer: list[str] = []
        self.external = 2048
        device = (
            '{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, '
            '"computeMinor": 0, "numSms": 132}'
        )
        self.out.write(
            f'\n  {{\n    "schemaVersion": 1,\n    "deviceProperties": [\n    {device}\n    ],\n'
            f'      "record_shapes": 1,\n      "distributedInfo": {{"backend": "nccl", "rank": {rank}, '
            f'"world_size": {world}}},\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_NS},\n'
            '  "traceEvents": ['
        )

    def add(self, category: str, text: str) -> None:
        self.counts[category] = self.counts.get(category, 0) + 1
        self.buffer.append(text if self.events == 0 else "," + text)
        self.events += 1
        if len(self.buffer) >= 20_000:
            self.out.write("".join(self.buffer))
            self.buffer.clear()

    def host(self, category: str, name: str, thread: int, start: int, dur: int, args: str) -> None:
        self.add(
            category,
            f'\n  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {PID}, "tid": {thread},\n'
            f'    "ts": {us(start)}, "dur": {us(dur)},\n    "args": {{\n      {args}\n    }}\n  }}',
        )

    def op(self, name: str, thread: int, start: int, dur: int, extra: str = "") -> int:
        self.external += 1
        args = (
            f'"External id": {self.external},"Record function id": 0, "Ev Idx": {self.external - 2049}{extra}'
        )
        category = "user_annotation" if name.startswith(("FSDP::", "Optimizer.", "nccl:")) else "cpu_op"
        self.host(category, name, thread, start, dur, args)
        return self.external

    def launch(self, thread: int, start: int, dur: int, correlation: int, external: int) -> None:
        args = f'"External id": {external}, "cbid": 211, "correlation": {correlation}'
        self.host("cuda_runtime", "cudaLaunchKernel", thread, start, dur, args)

    def kernel(
        self, name: str, stream: int, start: int, dur: int, correlation: int, external: int, extra: str = ""
    ) -> None:
        self.add(
            "kernel",
            f'\n  {{\n    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream},\n'
            f'    "ts": {us(start)}, "dur": {us(dur)},\n    "args": {{\n      "External id": {external},\n'
            f'      "queued": 0, "device": 0, "context": 1,\n      "stream": {stream}, "correlation": '
            f'{correlation},\n      "registers per thread": 32,\n      "shared memory": 0,\n'
            '      "blocks per SM": 3762.424316,\n      "warps per SM": 15049.697266,\n'
            f'      "grid": [496640, 1, 1],\n      "block": [128, 1, 1],\n'
            f'      "est. achieved occupancy %": 100{extra}\n    }}\n  }}',
        )

    def flow(self, correlation: int, thread: int, start: int, stream: int, begin: int) -> None:
        for phase, pid, lane, time, tail in (
            ("s", PID, thread, start, ""),
            ("f", 0, stream, begin, ', "bp": "e"'),
        ):
            self.add(
                "flow",
                f'\n  {{\n    "ph": "{phase}", "id": {correlation}, "pid": {pid}, "tid": {lane}, '
                f'"ts": {us(time)},\n    "cat": "ac2g", "name": "ac2g"{tail}\n  }}',
            )

    def close(self) -> None:
        self.out.write("".join(self.buffer))
        self.out.write('\n  ],\n  "traceName": "trace.json"\n}\n')
        self.out.close()


def us(ns: int) -> str:
    """Microseconds with three digits, as Kineto prints them."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Union of intervals, the slow and obvious way."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def total(spans: list[tuple[int, int]]) -> int:
    """Covered time."""
    return sum(end - start for start, end in merged(spans))


def jitter(seed: int) -> Iterator[int]:
    """Small repeatable numbers."""
    state = seed
    while True:
        state = (state * 1_103_515_245 + 12_345) % (1 << 31)
        yield state >> 12


def write_step(path: Path, kernels: int = 269_448) -> dict[str, Any]:
    """A launch-bound step; returns the planted truth."""
    writer, noise = Writer(path), jitter(7)
    forward = kernels * 2 // 5
    cpu, free = 5_000_000_000_000, 0
    calls = 0
    spans: list[tuple[int, int]] = []
    classes: dict[str, list[int]] = {}
    for index in range(kernels):
        thread, patterns = (MAIN, FORWARD) if index < forward else (BACKWARD, BACKWARDS)
        chain, kernel, kind, dur, dims, types = patterns[index % len(patterns)]
        dur += next(noise) % 900
        start = cpu
        cost = 9_000 + next(noise) % 4_000
        for depth, name in enumerate(chain):
            extra = (
                f', "Concrete Inputs": ["", ""], "Input type": {types}, "Input Strides": {STRIDES}, '
                f'"Input Dims": {dims}'
            )
            forward_id = f', "Sequence number": {index}, "Fwd thread id": {0 if thread == MAIN else 1}'
            external = writer.op(name, thread, start + 200 * depth, cost - 400 * depth, extra + forward_id)
        calls += len(chain)
        launch, launch_dur = start + cost - 400 * len(chain) - 4_500, 3_000
        correlation = 100_000 + index
        writer.launch(thread, launch, launch_dur, correlation, external)
        side = index % 50 == 49
        begin = launch + launch_dur + 2_000
        if not side:
            begin = max(begin, free)
            free = begin + dur
        stream = 20 if side else 7
        writer.kernel(kernel, stream, begin, dur, correlation, external)
        writer.flow(correlation, thread, launch, stream, begin)
        spans.append((begin, begin + dur))
        entry = classes.setdefault(kind, [0, 0])
        entry[0] += 1
        entry[1] += dur
        cpu = start + cost
        while calls < round((index + 1) * CALLS_PER_KERNEL):
            extra = (
                ', "Concrete Inputs": ["", "[4, 32, 8192]"], "Input type": ["float", "ScalarList"], '
                f'"Input Strides": {STRIDES}, "Input Dims": [[4, 32, 64, 128], []]'
            )
            writer.op("aten::view", thread, cpu + 100, 900, extra)
            cpu += 1_100
            calls += 1
    writer.close()
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    busy = total(spans)
    return {
        "events": writer.events,
        "cpu_ops": writer.counts["cpu_op"],
        "kernels": kernels,
        "span_ns": high - low,
        "busy_ns": busy,
        "idle_ns": high - low - busy,
        "classes": classes,
    }


def write_fsdp2(
    folder: Path, ranks: int = 4, layers: int = 12, late_rank: int | None = 2, late_us: int = 900
) -> dict[str, Any]:
    """One FSDP2 step on several ranks; returns the planted truth."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = _plan(ranks, layers, late_rank, late_us * 1_000)
    truth: dict[str, Any] = {"ranks": {}, "wait_ns": {}, "transfer_ns": {}, "late_rank": late_rank}
    for kind in ("all_gather", "reduce_scatter"):
        calls = [call for call in plan["collectives"] if call["kind"] == kind]
        truth["transfer_ns"][kind] = sum(call["end"] - max(call["starts"]) for call in calls)
        truth["wait_ns"][kind] = [
            sum(max(call["starts"]) - call["starts"][rank] for call in calls) for rank in range(ranks)
        ]
    for rank in range(ranks):
        path = folder / f"rank{rank}.json.gz"
        truth["ranks"][rank] = _write_rank(path, plan, rank, ranks)
    arrivals = [sorted(call["starts"]) for call in plan["collectives"]]
    truth["late_by_ns"] = sum(order[-1] - order[-2] for order in arrivals)
    truth["last_arrivals"] = sum(order[-1] > order[-2] for order in arrivals)
    (folder / "planted.json").write_text(json.dumps(truth, indent=1))
    return truth


def _plan(ranks: int, layers: int, late_rank: int | None, late_ns: int) -> dict[str, Any]:
    """The common time line in ns: collectives end on all ranks at once, compute follows them."""
    gather_free, scatter_free = [0] * ranks, [0] * ranks
    compute_free = [0] * ranks
    collectives: list[dict[str, Any]] = []
    compute: list[list[tuple[int, int, str]]] = [[] for _ in range(ranks)]

    def collective(kind: str, layer: int, ready: list[int], free: list[int], transfer: int) -> int:
        starts = [max(ready[rank], free[rank]) for rank in range(ranks)]
        end = max(starts) + transfer
        for rank in range(ranks):
            free[rank] = end
        collectives.append({"kind": kind, "layer": layer, "starts": starts, "end": end})
        return end

    def work(rank: int, after: int, dur: int, name: str) -> int:
        extra = late_ns if rank == late_rank else 0
        begin = max(after, compute_free[rank])
        compute_free[rank] = begin + dur + extra
        compute[rank].append((begin, dur + extra, name))
        return begin

    start = 40_000_000
    issue = [start] * ranks
    for layer in range(layers):
        end = collective("all_gather", layer, issue, gather_free, 700_000 + 1_000 * layer)
        issue = [work(rank, end, 1_500_000, "forward") for rank in range(ranks)]
    for layer in reversed(range(layers)):
        end = collective("all_gather", layer, issue, gather_free, 700_000 + 1_000 * layer)
        issue = [work(rank, end, 2_600_000, "backward") for rank in range(ranks)]
        collective("reduce_scatter", layer, list(compute_free), scatter_free, 900_000)
    return {"collectives": collectives, "compute": compute, "layers": layers}


def _write_rank(path: Path, plan: dict[str, Any], rank: int, ranks: int) -> dict[str, int]:
    """Write one rank with its own clock offset; returns its exposed and busy time."""
    writer = Writer(path, rank, ranks)
    offset = 5_000_000_000_000 + rank * 1_234_567
    jobs: list[tuple[int, int, str, int, dict[str, Any] | None]] = []
    for begin, dur, name in plan["compute"][rank]:
        jobs.append((begin, dur, name, 7, None))
    for call in plan["collectives"]:
        stream = 22 if call["kind"] == "all_gather" else 26
        jobs.append((call["starts"][rank], call["end"] - call["starts"][rank], call["kind"], stream, call))
    gemm = "nvjet_sm90_tst_256x144_64x4_2x1_v_bz_coopA_TNT"
    symbols = {
        "all_gather": (
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "_allgather_base",
        ),
        "reduce_scatter": (
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "_reduce_scatter_base",
        ),
    }
    for index, (begin, dur, name, stream, call) in enumerate(sorted(jobs, key=lambda job: job[0])):
        cpu = offset + 10_000 * index
        correlation = 9_000 + index
        if call is None:
            thread = MAIN if name == "forward" else BACKWARD
            chain = "aten::mm" if name == "forward" else "autograd::engine::evaluate_function: MmBackward0"
            external = writer.op(chain, thread, cpu, 8_000, ', "Sequence number": 1, "Fwd thread id": 0')
            symbol, extra = gemm, ""
        else:
            thread = MAIN
            mark = "all_gather" if name == "all_gather" else "post_backward_reduce"
            writer.op(f"FSDP::{mark} (model.layers.{call['layer']})", thread, cpu, 9_000)
            external = writer.op("record_param_comms", thread, cpu + 200, 8_000)
            symbol, collective = symbols[name]
            small, large = 1_000_000, 1_000_000 * ranks
            sizes = (small, large) if name == "all_gather" else (large, small)
            extra = (
                f', "Collective name": "{collective}", "In msg nelems": {sizes[0]}'
                f', "Out msg nelems": {sizes[1]}'
                f', "Group size": {ranks}, "dtype": "BFloat16", "Process Group Name": "0"'
                f', "Process Group Ranks": "{list(range(ranks))}"'
            )
        writer.launch(thread, cpu + 1_000, 3_000, correlation, external)
        writer.kernel(symbol, stream, offset + begin, dur, correlation, external, extra)
        writer.flow(correlation, thread, cpu + 1_000, stream, offset + begin)
    writer.op("Optimizer.step#AdamW.step", MAIN, offset + 10_000 * (len(jobs) + 1), 5_000)
    writer.close()
    comm = [(begin, begin + dur) for begin, dur, _, stream, _ in jobs if stream != 7]
    work = [(begin, begin + dur) for begin, dur, _, stream, _ in jobs if stream == 7]
    return {
        "busy_ns": total(comm + work),
        "communication_ns": total(comm),
        "compute_ns": total(work),
        "exposed_ns": total(comm + work) - total(work),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    step = kinds.add_parser("step", help="one big launch-bound step")
    step.add_argument("--out", type=Path, required=True)
    step.add_argument("--kernels", type=int, default=269_448)
    fsdp2 = kinds.add_parser("fsdp2", help="several ranks of an FSDP2 step")
    fsdp2.add_argument("--out", type=Path, required=True)
    fsdp2.add_argument("--ranks", type=int, default=4)
    fsdp2.add_argument("--layers", type=int, default=12)
    fsdp2.add_argument("--late-rank", type=int, default=2)
    fsdp2.add_argument("--late-us", type=int, default=900)
    given = parser.parse_args()
    if given.kind == "step":
        truth = write_step(given.out, given.kernels)
        given.out.with_name(given.out.name.split(".")[0] + ".planted.json").write_text(json.dumps(truth))
        print(f"{given.out}: {truth['events']:,} events, {given.out.stat().st_size:,} bytes")
    else:
        write_fsdp2(given.out, given.ranks, given.layers, given.late_rank, given.late_us)
        print(f"{given.out}: {given.ranks} ranks")


if __name__ == "__main__":
    main()
