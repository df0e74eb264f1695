"""Exact numbers of the recorded traces, to every printed digit."""

from __future__ import annotations

import pytest

from tests.trace.recorded import (
    A100,
    ALL,
    B200,
    FSDP,
    H100,
    MI300X,
    PACKED,
    PADDED,
    SAMPLED0,
    SAMPLED1,
    rank,
)

# Without what was launched before the recording began (MI300X, H100).
# file: events, cpu_op, kernel, memcpy, memset, GPU span ms, busy ms, idle % of span
COUNTS = {
    PADDED: (434_607, 228_421, 38_107, 1_314, 638, "2762.89", "803.65", "70.91"),
    PACKED: (81_205, 37_165, 7_770, 799, 620, "709.65", "395.17", "44.31"),
    FSDP: (211_146, 92_384, 19_497, 465, 1_758, "2045.29", "1962.68", "4.04"),
    MI300X: (56_451, 8_004, 2_238, 366, 81, "56.52", "56.23", "0.50"),
    A100: (40_573, 14_346, 2_700, 960, 114, "660.55", "157.50", "76.16"),
    SAMPLED0: (4_855, 2_329, 1_154, 40, 10, "1222.85", "547.66", "55.21"),
    SAMPLED1: (4_720, 2_302, 1_104, 40, 10, "1231.19", "580.05", "52.89"),
    B200: (24_656, 4_809, 768, 161, 0, "84.49", "11.60", "86.27"),
    H100: (18_221, 4_186, 1_029, 1, 168, "34.89", "31.91", "8.56"),
}


@pytest.mark.parametrize("name", ALL)
def test_counts_span_busy_and_idle(name: str) -> None:
    item = rank(name)
    assert item.gpu is not None
    found = (
        item.file.events,
        item.file.cpu_ops,
        item.file.kernels,
        item.file.memcpys,
        item.file.memsets,
        f"{item.gpu.span_ms:.2f}",
        f"{item.gpu.busy_ms:.2f}",
        f"{100 * item.gpu.idle_frac:.2f}",
    )
    assert found == COUNTS[name]


@pytest.mark.parametrize("name", ALL)
def test_at_most_five_percent_of_gpu_time_has_no_class(name: str) -> None:
    frac = rank(name).unclassified_frac
    assert frac is not None and frac <= 0.05, rank(name).unclassified_kernels


@pytest.mark.parametrize("name", ALL)
def test_parts_add_up(name: str) -> None:
    item = rank(name)
    assert item.gpu is not None
    assert sum(cause.total_ms for cause in item.idle) == pytest.approx(item.gpu.idle_ms, abs=1e-6)
    assert item.gpu.busy_ms + item.gpu.idle_ms == pytest.approx(item.gpu.span_ms, abs=1e-6)
    operations = item.file.kernels + item.file.memcpys + item.file.memsets
    assert sum(row.count for row in item.classes) == operations
    assert sum(row.kernels for row in item.regions) == item.file.kernels
    assert sum(row.calls for row in item.tables.gpu_kernels) == item.tables.gpu_kernel_count
    assert sum(row.calls for row in item.tables.cpu_ops) == item.tables.cpu_calls


# Exposed communication in ms and the GPU span it is a part of.
EXPOSED = {
    FSDP: (826.86, 122.93, 2045),
    MI300X: (47.2, 35.0, 56.5),
    A100: (46.88, 39, 661),
    SAMPLED0: (396, 336, 1223),
    SAMPLED1: (379, 299, 1231),
}


@pytest.mark.parametrize("name", EXPOSED)
def test_exposed_communication(name: str) -> None:
    total, exposed, span = EXPOSED[name]
    found, gpu = rank(name).communication, rank(name).gpu
    assert gpu is not None and found.exposed_ms is not None and found.total_ms is not None
    digits = len(str(exposed).partition(".")[2])
    assert round(found.exposed_ms, digits) == exposed
    assert found.total_ms == pytest.approx(total, abs=0.5)
    assert gpu.span_ms == pytest.approx(span, abs=1)


def test_collectives_of_the_fsdp_step() -> None:
    found = rank(FSDP).communication
    by_kind: dict[str, int] = {}
    for row in found.collectives:
        by_kind[row.kind] = by_kind.get(row.kind, 0) + row.count
    assert by_kind == {"all_gather": 129, "reduce_scatter": 65, "all_reduce": 1}
    gathers = {row.elements_in: row.count for row in found.collectives if row.kind == "all_gather"}
    assert gathers == {191_636_592: 96, 186_127_616: 32, 1_271_400_960: 1}
    largest = next(row for row in found.collectives if row.elements_in == 191_636_592)
    assert largest.dtype == "BFloat16" and largest.group_size == 2 and largest.bytes == 766_546_368
    assert (f"{largest.fastest_ms:.2f}", f"{largest.slowest_ms:.2f}") == ("1.33", "9.95")
    assert largest.median_ms == pytest.approx(1.80, abs=0.01)
    assert largest.bus_gb_s == pytest.approx(288, abs=1)
    assert {(item.stream, item.role) for item in rank(FSDP).streams} >= {
        (7, "compute"),
        (22, "communication"),
        (26, "communication"),
    }


def test_work_launched_before_the_recording_is_left_out() -> None:
    """The first recorded step found a queue of 968 operations, a whole step more than the three recorded."""
    item = rank(MI300X)
    assert [(step.gpu_kernels, step.launches) for step in item.steps.steps] == [(746, 746)] * 3
    assert {f"{step.gpu_busy_ms:.1f}" for step in item.steps.steps} == {"18.9", "18.4"}
    found = item.communication
    assert found.kernels == 12 and {row.kind: row.count for row in found.collectives}.keys() == {
        "all_reduce",
        "broadcast",
    }
    said = {warning.code: warning.text for warning in item.validity.warnings}
    assert said["launched_earlier"].startswith("968 GPU operations (31.8 ms)")
    assert not rank(PADDED).validity.has("launched_earlier")


def test_classes_of_the_padded_step() -> None:
    found = {row.name: row for row in rank(PADDED).classes}
    expected = {
        "triangular_solve": (108, 39),
        "causal_conv": (72, 29),
        "reduction": (1105, 20),
        "elementwise": (26_492, 394),
        "attention": (24, 18),
        "loss": (4, 14),
    }
    for name, (count, total) in expected.items():
        assert (found[name].count, round(found[name].total_ms)) == (count, total), name
    gemm = {row.dtype: (row.count, round(row.total_ms)) for row in rank(PADDED).gemm}
    assert gemm == {"bf16": (759, 116), "fp32": (8173, 77)}
    assert "linear_attention" not in found


def test_anonymous_kernels_take_the_class_of_their_op() -> None:
    rows = {row.name: row for row in rank(PACKED).tables.gpu_kernels}
    row = rows["kernel_kernel"]
    assert (row.calls, row.kernel_class) == (18, "linear_attention")
    assert row.launched_by == "ChunkGatedDeltaRuleFunctionBackward"
    linear = next(item for item in rank(PACKED).classes if item.name == "linear_attention")
    assert round(linear.total_ms) == 24


def test_flash_kernels_with_cutlass_types_are_attention() -> None:
    rows = [row for row in rank(PACKED).tables.gpu_kernels if "pytorch_flash::" in row.name]
    assert rows and all("cutlass" in row.name and row.kernel_class == "attention" for row in rows)


def test_founding_tables() -> None:
    padded, packed = rank(PADDED).tables, rank(PACKED).tables
    assert (padded.cpu_calls, padded.gpu_kernel_count) == (228_421, 38_107)
    assert (f"{padded.median_kernel_us:.2f}", f"{packed.median_kernel_us:.1f}") == ("7.17", "25.8")
    top = padded.gpu_kernels[0]
    assert "CUDAFunctor_add<float>" in top.name and (top.calls, round(top.total_ms)) == (6673, 108)
    assert (packed.gpu_kernels[0].calls, round(packed.gpu_kernels[0].total_ms)) == (139, 37)


def test_launch_facts() -> None:
    facts = rank(PADDED).launch
    assert facts is not None
    assert facts.calls_by_name == {
        "cudaLaunchKernel": 29_145,
        "cudaLaunchKernelExC": 8_173,
        "cuLaunchKernelEx": 753,
        "cuLaunchKernel": 36,
    }
    assert facts.started_at_once_frac is not None and facts.started_at_once_frac > 0.5
    ahead = rank(FSDP).launch
    assert ahead is not None and ahead.started_at_once_frac is not None and ahead.started_at_once_frac < 0.05


def test_items_are_no_syncs() -> None:
    facts = rank(PADDED).syncs
    assert facts.device_to_host_copies == 3
    assert facts.count < 20 and facts.blocking_ms < 2
    assert sum(row.calls for row in rank(PADDED).tables.cpu_ops if row.name == "aten::item") == 645


def test_profiler_end_synchronisation_is_set_apart() -> None:
    assert rank(MI300X).syncs.at_profiler_end_ms == pytest.approx(37.9, abs=0.1)
    assert rank(MI300X).syncs.blocking_ms < 0.1


def test_recomputation() -> None:
    for name, segments in ((PADDED, 24), (PACKED, 24), (FSDP, 64), (MI300X, 12)):
        found = rank(name).recompute
        assert (found.detected, found.regions) == (True, segments), name
        assert found.gpu_ms > 0
    assert rank(A100).recompute.detected is False
    assert rank(B200).recompute.detected is None
    pairs = {pair.forward: (pair.forward_count, pair.backward_count) for pair in rank(PACKED).recompute.pairs}
    assert pairs["pytorch_flash::flash_fwd_kernel"] == (12, 6)
    assert pairs["causal_conv1d_channellast_fwd_kernel"] == (36, 18)


def test_attention_of_the_padded_and_the_packed_step() -> None:
    padded, packed = rank(PADDED).attention, rank(PACKED).attention
    assert padded.backends == {"cudnn": 12} and padded.backward_calls == {"cudnn": 6}
    assert (padded.mask_passed, padded.mask_dtypes, padded.enable_gqa) == (12, ["bool"], False)
    assert padded.mask_shapes == [[4, 1, 1773, 1773]]
    assert packed.backends == {"varlen": 12} and packed.mask_passed == 0
    assert rank(H100).attention.mask_absent == 24 and rank(H100).attention.backends == {"flash": 24}


def test_linear_attention_and_convolution() -> None:
    padded, packed = rank(PADDED), rank(PACKED)
    assert padded.linear_attention.triangular_solves == 108
    assert padded.linear_attention.triangular_solve_backwards == 36
    assert padded.linear_attention.fast_kernels == 0
    assert round(padded.linear_attention.fallback_gpu_ms) == 463, "all work between the projections"
    assert packed.linear_attention.fallback_gpu_ms == 0
    assert padded.gpu is not None and packed.gpu is not None
    # what the fused kernels leave of the step is less than their own step takes
    assert padded.gpu.busy_ms - padded.linear_attention.fallback_gpu_ms < packed.gpu.busy_ms
    assert packed.linear_attention.triangular_solves == 0
    assert packed.linear_attention.fast_functions == {
        "ChunkGatedDeltaRuleFunction": 36,
        "ChunkGatedDeltaRuleFunctionBackward": 18,
    }
    assert (padded.convolution.depthwise_calls, padded.convolution.depthwise_kernels) == (36, 72)
    assert round(padded.convolution.depthwise_kernel_ms) == 29
    assert (packed.convolution.depthwise_calls, packed.convolution.causal_conv_kernels) == (0, 54)
    assert f"{packed.convolution.causal_conv_kernel_ms:.1f}" == "7.7"


def test_optimizers() -> None:
    packed = rank(PACKED).optimizer
    assert (packed.name, packed.implementation) == ("AdamW", "foreach")
    assert round(packed.cpu_ms) == 27
    assert rank(FSDP).optimizer.implementation == "fused"
    assert (rank(MI300X).optimizer.name, rank(MI300X).optimizer.implementation) == ("SGD", "foreach")


def test_steps() -> None:
    mi300x, a100 = rank(MI300X).steps, rank(A100).steps
    assert mi300x.source == a100.source == "profiler_step"
    assert [f"{step.span_ms:.1f}" for step in mi300x.steps] == ["16.8", "16.0", "15.9"]
    assert [round(step.span_ms) for step in a100.steps] == [223, 220, 225]
    assert all(49 <= (step.gpu_busy_ms or 0) <= 59 for step in a100.steps)
    for name in (PADDED, PACKED, FSDP):
        assert (rank(name).steps.source, rank(name).steps.count) == ("optimizer_annotation", 1)


def test_validity() -> None:
    assert rank(SAMPLED0).validity.has("dropped_records") and rank(SAMPLED0).validity.confidence == "low"
    assert rank(B200).validity.training is False and rank(H100).validity.training is False
    for name in (PADDED, PACKED, FSDP, MI300X, A100, SAMPLED0, SAMPLED1):
        assert rank(name).validity.training is True, name
    assert rank(FSDP).validity.has("command_buffer_full")
    assert rank(FSDP).validity.confidence == "high"
    assert rank(PADDED).validity.has("profiled_step_inflated")


def test_communication_outside_nccl_names() -> None:
    found = rank(B200).communication
    assert sum(row.count for row in found.collectives if "multimem_all_reduce" in row.kernel) == 73


def test_device_and_ranks() -> None:
    item = rank(FSDP)
    assert item.device is not None and item.device.name == "NVIDIA H200"
    assert (item.device.bf16_peak_tflops, item.device.memory_gb_s) == (989, 4800)
    assert (item.rank, item.world_size, item.backend) == (0, 2, "nccl")
    amd = rank(MI300X).device
    assert amd is not None and (amd.vendor, amd.used, amd.visible_count) == ("amd", [2], 8)
    bare = rank(SAMPLED0).device
    assert bare is not None and (bare.name, bare.vendor, bare.bf16_peak_tflops) == (None, "nvidia", None)


def test_achieved_flops_are_plausible() -> None:
    for name in (PADDED, PACKED, FSDP):
        facts = rank(name).flops
        assert facts is not None and facts.main_dtype == "bf16"
        matmul = next(row for row in facts.rows if row.op == "aten::mm")
        assert matmul.tflops is not None and 600 < matmul.tflops < 989


def test_time_in_which_attention_was_planned() -> None:
    """Two forwards (84 and 51 ms) of 12 and one backward (56 ms); the others take 0.1 to 0.3 ms."""
    assert rank(PADDED).attention.backends == {"cudnn": 12}
    assert round(rank(PADDED).attention.planning_ms, 1) == 190.9
    assert rank(PACKED).attention.planning_ms == 0.0
