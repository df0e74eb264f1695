"""The import lines of the generated script: only what this script uses."""

from __future__ import annotations

from autotune.records.script import ScriptContext, source_type


def standard_imports(context: ScriptContext) -> list[str]:
    """The standard library modules that this script uses."""
    read_by = {source_type(source) for source in (context.data.source, context.data.eval_source) if source}
    names = {"argparse", "collections", "functools", "itertools", "json", "math", "os", "random", "shutil"}
    names |= {"signal", "time"}
    names |= {"glob"} if read_by & {"jsonl", "parquet"} or context.data.streaming else set()
    names |= {"bisect"} if context.packing.packs else set()
    names |= {"importlib", "inspect", "sys"} if "hook" in read_by else set()
    names |= {"hashlib"} if context.data.streaming else set()
    return sorted(names)


def tokenizer_class(context: ScriptContext) -> str | None:
    """The class that the script makes its tokenizer with; absent when its rows are tokens already."""
    if context.data.kind == "tokens" and not context.model.tokenizer:
        return None
    from_file = (context.model.tokenizer or "").endswith(".json")
    return "PreTrainedTokenizerFast" if from_file else "AutoTokenizer"


def package_imports(context: ScriptContext) -> list[str]:
    """The import lines of installed packages, in the order of a formatter."""
    c, packed = context, context.packing.packs
    read_by = {source_type(source) for source in (c.data.source, c.data.eval_source) if source}
    pretrained = c.model.weights == "pretrained"
    wanted: list[tuple[object, str]] = [
        (True, "import torch"),
        (True, "import torch.distributed as dist"),
        (True, "import torch.distributed.checkpoint as dcp"),
        (True, "import torch.distributed.checkpoint.state_dict as dsd"),
        (True, "import torch.nn.functional as F"),
        (c.run.tracker in ("wandb", "mlflow"), f"import {c.run.tracker}"),
        (read_by & {"parquet", "hub"}, "from datasets import load_dataset"),
        (pretrained, "from huggingface_hub import snapshot_download"),
        (
            c.loss.head == "liger",
            "from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy",
        ),
        (c.model.liger_layers, "from liger_kernel.transformers.monkey_patch import _apply_liger_kernel"),
        (c.model.lora, "from peft import LoraConfig"),
        (pretrained, "from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader"),
        (
            True,
            f"from torch.distributed.fsdp import {'FSDPModule, ' if c.data.eval_source else ''}"
            "MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method",
        ),
        (packed, "from torch.nn.attention.varlen import varlen_attn"),
        (c.memory.checkpointing != "none", "from torch.utils.checkpoint import checkpoint"),
        (c.run.tracker == "tensorboard", "from torch.utils.tensorboard import SummaryWriter"),
        (c.precision.float8, "from torchao.float8 import convert_to_float8_training"),
        (True, "import transformers as hf"),
        (True, f"from transformers import {'conversion_mapping, ' if pretrained else ''}initialization"),
        (True, "from torch.nn.modules.module import register_module_parameter_registration_hook"),
    ]
    lines = [line for condition, line in wanted if condition]
    return sorted(lines, key=lambda line: (not line.startswith("import"), line.split()[1]))
