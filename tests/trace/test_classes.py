"""Kernel names of many writers and eras, and what they must not be taken for."""

from __future__ import annotations

import pytest

from autotune.trace.classes import load_kernel_table, split_name
from tests.trace.recorded import TABLES

TABLE = load_kernel_table(TABLES)

NAMES: dict[str, tuple[str, ...]] = {
    "communication": (
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)",
    ),
    "attention": (
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<256, 64, cutlass::bfloat16_t> >(x)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<X> > >(Params)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<bf16>::Params)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x256_kernel0_0",
        "triton_tem_fused_flex_attention_3",
    ),
    "linear_attention": (
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
        "recompute_w_u_fwd_kernel",
        "_chunk_scan_fwd_kernel",
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<32, 4> >(SSMParamsBase)",
    ),
    "causal_conv": (
        "void causal_conv1d_channellast_fwd_kernel<T<128, 4, 64, true> >(ConvParamsBase)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel_generic<float, int>(x)",
    ),
    "triangular_solve": (
        "void batch_trsm_left_kernel<float, 64, 4, 3, false, true, true>(P, float, float const*, int)",
    ),
    "gemm": (
        "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(Params)",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
        "volta_sgemm_128x64_nn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute_kernel__5x_cublas",
        "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(x)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>(x)",
    ),
    "conv": (
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_kernel_cudnn_train",
        "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt32x128x32_wt16x64x4_ws1x1_wr1x1_gkgs",
        "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemmE",
    ),
    "norm": (
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(float)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        "_rms_norm_forward_kernel",
    ),
    "loss": (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::"
        "native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)",
        "liger_cross_entropy_kernel",
    ),
    "softmax": (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(x)",
    ),
    "optimizer": (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorList"
        "Metadata<2>, at::native::BinaryOpScalarFunctor<float>, std::multiplies<float>, float>(x)",
    ),
    "elementwise": (
        "void at::native::vectorized_elementwise_kernel<4, at::native::neg_kernel_cuda(at::Tensor"
        "IteratorBase&)::{lambda()#2}::operator()() const::{lambda()#7}::operator()() const::{lam"
        "bda(float)#1}>(int)",
    ),
    "reduction": (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<f"
        "loat> > >(x)",
    ),
    "sharding_copy": (
        "void at::native::detail::chunk_cat_cuda_kernel<float, c10::BFloat16>(c10::BFloat16**)",
    ),
    "compiled": (
        "triton_poi_fused_add_mul_0",
        "triton_red_fused__to_copy_mean_mul_pow_rsqrt_5",
    ),
    "embedding": ("void split_embedding_codegen_forward_unweighted_kernel<c10::Half, float>(x)",),
    "cat": ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u> >(x)",),
    "sort_scan": ("void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int> >(x)",),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names])
def test_class_by_name(kind: str, name: str) -> None:
    assert TABLE.of_kernel(name) == kind


@pytest.mark.parametrize("name", ["kernel_kernel", "main_kernel", "kernel", "main_kernel0"])
def test_anonymous_names_say_nothing(name: str) -> None:
    assert TABLE.of_kernel(name) is None


@pytest.mark.parametrize("name", ["my_fancy_thing", "frobnicate<int>(int)", "", "_Z", "_ZN3fooE", "a" * 5000])
def test_unknown_names_stay_unknown(name: str) -> None:
    assert TABLE.of_kernel(name) is None


def test_classes_by_launching_op() -> None:
    assert TABLE.of_op("ChunkGatedDeltaRuleFunctionBackward") == "linear_attention"
    assert TABLE.of_op("autograd::engine::evaluate_function: CausalConv1dFnBackward") == "causal_conv"
    assert TABLE.of_op("aten::_scaled_dot_product_flash_attention_backward") == "attention"
    assert TABLE.of_op("aten::lambda_like") is None


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("void a::b<int, c<d> >(e<f>*)", "a::b"),
        ("std::enable_if<(((8)>(0)))&&x::y<z>::is, void>::type vllm::fused<bf16, 8>(long)", "vllm::fused"),
        ("nvjet_sm90_tst", "nvjet_sm90_tst"),
        ("_ZN19cutlass_cudnn_train6KernelINS_4convE", "cutlass_cudnn_train::Kernel"),
        ("_ZN2ck12_GLOBAL__N_122kernel_grouped_convIJE", "ck::kernel_grouped_convIJE"),
        ("void (anonymous namespace)::softmax<float>(float*)", "softmax"),
        ("broken<<<(", "broken"),
    ],
)  # fmt: skip
def test_heads(name: str, head: str) -> None:
    assert split_name(name)[0] == head


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_ffma_execute_kernel__5x_cublas", "fp32"),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4", "tf32"),
        ("sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n", "tf32"),
        ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "bf16"),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn", "fp16"),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256", "fp4"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n", "fp8"),
        ("something_else", "unknown"),
    ],
)
def test_gemm_types_by_name(kernel: str, dtype: str) -> None:
    assert TABLE.gemm_dtype(kernel) == dtype
