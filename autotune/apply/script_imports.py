"""The import lines of the generated script: only what this script uses."""

from __future__ import annotations

from autotune.records.script import ScriptContext, source_type


def standard_imports(context: ScriptContext) -> list[str]:
    """The standard library modules that this script uses."""
    read_by = {source_type(source) for source in (context.data.source, context.data.eval_source) if source}
    names = {"argparse", "functools", "glob", "itertools", "json", "math", "os", "shutil", "signal", "time"}
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
    pretrained, tokenizer = c.model.weights == "pretrained", tokenizer_class(c)
    selective = c.memory.checkpointing == "selective"
    wanted: list[tuple[object, str]] = [
        (True, "import numpy as np"),
        (True, "import torch"),
        (True, "import torch.distributed as dist"),
        (True, "import torch.distributed.checkpoint as dcp"),
        (True, "import torch.distributed.checkpoint.state_dict as dsd"),
        (True, "import torch.nn.functional as F"),
        (c.run.tracker in ("wandb", "mlflow"), f"import {c.run.tracker}"),
        ("datasets" in read_by, "from datasets import load_dataset"),
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
        (c.memory.checkpointing == "full", "from torch.utils.checkpoint import checkpoint"),
        (
            selective,
            "from torch.utils.checkpoint import CheckpointPolicy, checkpoint, "
            "create_selective_checkpoint_contexts",
        ),
        (True, "from torch.utils.data import DataLoader, IterableDataset"),
        (c.run.tracker == "tensorboard", "from torch.utils.tensorboard import SummaryWriter"),
        (c.precision.float8, "from torchao.float8 import convert_to_float8_training"),
        (
            True,
            "from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, "
            "AutoModelForCausalLM" + (", AutoTokenizer" if tokenizer == "AutoTokenizer" else ""),
        ),
        (tokenizer == "PreTrainedTokenizerFast", "from transformers import PreTrainedTokenizerFast"),
        (pretrained, "from transformers.conversion_mapping import get_checkpoint_conversion_mapping"),
        (True, "from transformers.initialization import no_init_weights"),
        (True, "from transformers.optimization import get_scheduler"),
        (True, "from transformers.utils import is_flash_attn_2_available"),
    ]
    lines = [line for condition, line in wanted if condition]
    return sorted(lines, key=lambda line: (not line.startswith("import"), line.split()[1]))
