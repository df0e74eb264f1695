"""A small training job that is in order, and the faults it can be given by name.

    python job.py                       nothing wrong
    python job.py eager padding         with two faults
    torchrun --nproc-per-node 2 job.py ddp find-unused

It stands for real jobs when rules are tried: each fault is written as people write it.
"""

import gc
import os
import random
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, LlamaConfig

FAULTS = set(sys.argv[1:])
STEPS = 40
LENGTH = 128


def has(name):
    return name in FAULTS


class Examples(Dataset):
    """Random token lists; lengths by the faults asked for."""

    def __init__(self, count=4000):
        rng = random.Random(7)
        lengths = [LENGTH] * count
        if has("padding") or has("to-maximum") or has("encoder-padding"):
            lengths = [max(4, min(LENGTH, int(rng.lognormvariate(3.4, 0.9)))) for _ in range(count)]
        self.rows = [[rng.randrange(3, 500) for _ in range(n)] for n in lengths]

    def __len__(self):
        return 120 if has("short-epochs") else len(self.rows)

    def __getitem__(self, index):
        if has("slow-loader") or has("slow-examples"):
            time.sleep(0.02 if has("slow-loader") else 0.1)
        return self.rows[index]


def collate(rows):
    width = LENGTH if has("to-maximum") else max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
        labels[i, : len(row)] = ids[i, : len(row)]
        if has("prompts"):
            labels[i, : int(0.9 * len(row))] = -100
    if has("no-labels") and rows[0][0] % 5 == 0:
        labels[:] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def packed(rows):
    """All examples of a batch in one row, with position ids only."""
    ids = torch.tensor([token for row in rows for token in row])[None]
    positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
    return {"input_ids": ids, "position_ids": positions, "labels": ids.clone()}


def make_model(device):
    layers = 12 if has("deep") else 4
    small = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
    }
    attention = "eager" if has("eager") or has("weights") else "sdpa"
    if has("encoder-padding"):
        config = BertConfig(
            vocab_size=512, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **small
        )
        return AutoModelForMaskedLM.from_config(config, attn_implementation=attention).to(device)
    if has("hybrid"):
        from transformers import Qwen3_5ForCausalLM
        from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

        config = Qwen3_5TextConfig(
            vocab_size=512,
            num_key_value_heads=2,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            **small,
        )
        return Qwen3_5ForCausalLM(config).to(device)
    if has("new-family"):
        from transformers import CohereConfig

        config = CohereConfig(vocab_size=512, num_key_value_heads=2, **small)
    else:
        config = LlamaConfig(
            vocab_size=513 if has("odd-vocabulary") else 248_320 if has("large-vocabulary") else 512,
            num_key_value_heads=2,
            use_cache=has("cache"),
            output_attentions=has("weights"),
            **small,
        )
    config.use_cache = has("cache")
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(device)
    if has("bf16-weights"):
        model = model.to(torch.bfloat16)
    if has("frozen"):
        for parameter in model.model.layers.parameters():
            parameter.requires_grad_(False)
    return model


def wrap(model, device):
    if has("checkpointing"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": has("reentrant")})
        model.enable_input_require_grads()
    if has("ddp"):
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model, find_unused_parameters=has("find-unused"))
    if has("fsdp2-one-unit") or has("fsdp2-tiny-units") or has("fsdp2"):
        from torch.distributed.fsdp import fully_shard

        if has("fsdp2-tiny-units"):
            for module in model.modules():
                if isinstance(module, torch.nn.Linear):
                    fully_shard(module)
        elif not has("fsdp2-one-unit"):
            for layer in model.model.layers:
                fully_shard(layer)
        fully_shard(model)
    if has("fsdp1"):
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=None if device.type == "cpu" else device)
    if has("breaks"):
        break_layers(model)
    if has("compiled"):
        mode = "max-autotune" if has("autotune") else "default"
        model = torch.compile(model, mode=None if mode == "default" else mode, dynamic=False)
    return model


def make_loader():
    data = Examples()
    options = {}
    if has("workers"):
        options = {"num_workers": 2, "persistent_workers": not has("short-epochs")}
    if has("slow-examples"):
        options = {"num_workers": 2, "persistent_workers": True}
    if has("too-many-workers"):
        options = {"num_workers": 8, "persistent_workers": True}
    batch = 8
    join = packed if has("packed") else collate
    sampler = None
    if dist.is_initialized():
        sampler = torch.utils.data.DistributedSampler(data, seed=3)
    return DataLoader(
        data, batch_size=batch, shuffle=sampler is None, sampler=sampler, collate_fn=join, **options
    )


def break_layers(model):
    """A value is read inside every layer, as debugging prints do."""
    for layer in model.model.layers:
        inner = layer.mlp.forward

        def forward(hidden, inner=inner):
            if float(hidden.abs().max()) > 1e6:
                print("large activations")
            return inner(hidden)

        layer.mlp.forward = forward


def train_with_trainer():
    """The same job through transformers' Trainer, with frequent evaluation and short epochs."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=20,
        per_device_train_batch_size=8,
        dataloader_num_workers=1,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="no",
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
    )
    data = Examples()
    Trainer(
        model=make_model(torch.device("cpu")),
        args=arguments,
        train_dataset=data,
        eval_dataset=torch.utils.data.Subset(data, range(100)),
        data_collator=collate,
    ).train()


def main():
    torch.manual_seed(0)
    if has("trainer"):
        return train_with_trainer()
    device = torch.device("cuda" if torch.cuda.is_available() and not has("cpu") else "cpu")
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
    if has("anomaly"):
        torch.autograd.set_detect_anomaly(True)
    if has("deterministic"):
        torch.use_deterministic_algorithms(True, warn_only=True)
    if has("tf32"):
        torch.set_float32_matmul_precision("high")
    model = wrap(make_model(device), device)
    parameters = model.parameters()
    if not has("frozen"):
        parameters = [p for p in parameters if p.requires_grad]
    if has("not-fused"):
        optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    loader = make_loader()
    if has("math"):
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
    model.train()
    step = 0
    kept = []
    while step < STEPS:
        for batch in loader:
            batch = {name: value.to(device) for name, value in batch.items()}
            if has("encoder-padding"):
                batch["labels"] = batch["labels"].clone()
            if has("bf16"):
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = model(**batch).loss
            elif has("fp16"):
                with torch.autocast(device.type, dtype=torch.float16):
                    loss = model(**batch).loss
            else:
                loss = model(**batch).loss
            if has("boolean-indexing"):
                counted = batch["labels"][batch["labels"] != -100]
                loss = loss * (len(counted) > 0) + 0.0 * torch.nonzero(batch["input_ids"] > 5).float().mean()
            loss.backward()
            if has("clip"):
                torch.nn.utils.clip_grad_norm_(
                    parameters, 1.0, foreach=False, error_if_nonfinite=has("finite-check")
                )
            optimizer.step()
            optimizer.zero_grad(set_to_none=not has("zero-fill"))
            step += 1
            if has("read"):
                print(f"step {step} loss {loss.item():.4f}")
            if has("synchronize"):
                torch.cuda.synchronize()
            if has("empty-cache"):
                torch.cuda.empty_cache()
            if has("collect"):
                gc.collect()
            if has("garbage"):
                kept = [[object() for _ in range(50)] for _ in range(4000)]
                for item in kept:
                    item.append(item)
            if has("save") and step % 4 == 0:
                state = [model.state_dict(), optimizer.state_dict(), torch.zeros(40_000_000)]
                torch.save(state, os.path.join(tempfile.gettempdir(), f"faults-{os.getpid()}.pt"))
            if has("uneven-ranks") and dist.is_initialized() and dist.get_rank() == 1:
                time.sleep(0.05)
            if step >= STEPS:
                break
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
