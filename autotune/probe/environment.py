"""Software and hardware as this rank sees them.

Environment variables only from a short list, never with secrets.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Any

from .core import core

PACKAGES = (
    "torch", "transformers", "accelerate", "trl", "peft", "deepspeed", "lightning", "pytorch-lightning",
    "datasets",
    "tokenizers", "triton", "flash-linear-attention", "fla-core", "causal-conv1d", "mamba-ssm", "flash-attn",
    "flash-qla", "tilelang", "kernels", "liger-kernel", "cut-cross-entropy", "xformers", "bitsandbytes",
    "apex",
    "transformer-engine", "torchao", "unsloth", "einops", "numpy", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
    "nvidia-cuda-cupti-cu11", "nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti",
    "torchvision", "torchtitan", "megatron-core", "wandb", "mlflow",
)  # fmt: skip
VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TORCH_LOGS", "TORCH_CPP_LOG_LEVEL",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_SHOW_CPP_STACKTRACES", "TORCH_NCCL_BLOCKING_WAIT", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_ALGO",
    "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_BLOCKING_WAIT", "TORCH_COMPILE_DISABLE",
    "TORCHDYNAMO_DISABLE",
    "TORCHDYNAMO_VERBOSE", "TOKENIZERS_PARALLELISM", "USE_HUB_KERNELS", "FLASH_ATTN_KERNEL_FALLBACK",
    "FLA_DISABLE_BACKEND_DISPATCH", "FLA_TILELANG", "FLA_FLASH_QLA", "FLA_CONV_BACKEND", "TRITON_INTERPRET",
    "PYTHONDEVMODE", "PYTHONNODEBUGRANGES", "PYTHONUNBUFFERED", "NVIDIA_TF32_OVERRIDE",
    "ACCELERATE_MIXED_PRECISION",
    "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "FSDP_VERSION", "HF_HUB_OFFLINE", "WANDB_MODE",
)  # fmt: skip


def report() -> None:
    core.emit("environment", collect())


def collect() -> dict[str, Any]:
    torch: Any = sys.modules.get("torch")
    packages: dict[str, str] = {}
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except Exception:
            continue
    found: dict[str, Any] = {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "torch": str(getattr(torch, "__version__", "")),
        "cuda": getattr(getattr(torch, "version", None), "cuda", None),
        "packages": packages,
        "variables": {name: os.environ[name][:120] for name in VARIABLES if name in os.environ},
        "cpu_cores": cpu_cores(),
        "interpreter": sys.executable or "",
    }
    kernels: Any = sys.modules.get(f"{__package__}.kernel_facts")
    if kernels is not None:
        found["broken_packages"] = kernels.broken_packages()
    if torch is not None:
        found["cpu_threads"] = torch.get_num_threads()
        found.update(_device(torch))
    return found


def host_bytes() -> int | None:
    """Memory this process may use: that of the machine, or its control group's limit when that is smaller."""
    found = []
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError, AttributeError):
        pass
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                found.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return min(found, default=None)


def _device(torch: Any) -> dict[str, Any]:
    """The accelerator, without initialising it: facts of an uninitialised device come with a later report."""
    if not torch.cuda.is_available():
        other = getattr(torch, "accelerator", None)
        kind = "cpu"
        try:
            if other is not None and other.is_available():
                kind = str(other.current_accelerator().type)
        except Exception:
            kind = "cpu"
        return {"device_type": kind, "device_count": 0 if kind == "cpu" else 1}
    found: dict[str, Any] = {"device_type": "cuda", "device_count": torch.cuda.device_count()}
    if torch.cuda.is_initialized():
        major, minor = torch.cuda.get_device_capability()
        found["device_name"] = torch.cuda.get_device_name()
        found["compute_capability"] = float(f"{major}.{minor}")
        found["bf16_supported"] = major >= 8 if torch.version.cuda else True
    return found


def cpu_cores() -> float | None:
    """Cores this process may use: the affinity mask, cut down by a control-group quota."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        count = os.cpu_count()
        cores = float(count) if count else None  # type: ignore[assignment]
    quota = _quota()
    if cores is None:
        return quota
    return min(cores, quota) if quota is not None else cores


def _quota() -> float | None:
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            limit, period = file.read().split()
        return None if limit == "max" else round(int(limit) / int(period), 2)
    except (OSError, ValueError):
        pass
    try:
        with open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", encoding="ascii") as file:
            limit_us = int(file.read())
        with open("/sys/fs/cgroup/cpu/cpu.cfs_period_us", encoding="ascii") as file:
            period_us = int(file.read())
        return round(limit_us / period_us, 2) if limit_us > 0 else None
    except (OSError, ValueError):
        return None
