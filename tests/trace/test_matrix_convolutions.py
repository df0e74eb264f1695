"""Which convolution kernels compute on matrix units, by their names; the others are not counted."""

from __future__ import annotations

import pytest

from autotune.data import data_dir
from autotune.trace.classes import load_kernel_table

_XMMA = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4"
_FFMA = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize32x32x8_stage3"
_CK = "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28Grid"


@pytest.mark.parametrize(
    ("kernel", "counts"),
    [
        (f"{_XMMA}_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn", True),
        (f"{_FFMA}_warpsize1x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn", False),
        ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_interior_nhwc_tn_v1", True),
        ("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_exp_small_nhwc_tn_v1", True),
        ("volta_scudnn_128x64_relu_interior_nn_v1", False),
        (
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64>(Params)",
            True,
        ),
        ("void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>(x)", False),
        ("igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2_gkgs", True),
        ("igemm_fwd_gtcn2_nchwc_fp16_bx0_ex0_bt128x128x16", False),
        ("miopenSp3AsmConv_v30_3_1_gfx94x_fp16_dot2_edc_dilation2", False),
        (_CK, True),
        ("void ck::tensor_operation::device::kernel_grouped_conv_fwd_dl_multiple_d<x>(y)", False),
        ("SubTensorOpWithScalar1d", False),
    ],
)
def test_names_of_matrix_units(kernel: str, counts: bool) -> None:
    table = load_kernel_table(data_dir("rules") / "_tables")
    assert table.of_kernel(kernel) == "conv"
    assert table.is_matrix_convolution(kernel) is counts
