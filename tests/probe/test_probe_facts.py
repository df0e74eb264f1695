"""What the observer says about jobs whose truth is known."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import SCRIPTS, Job, faults, run, told

from autotune.data import data_dir
from autotune.facts.everything import derive_facts
from autotune.trace.summary import summarize

pytestmark = pytest.mark.job
TABLES = data_dir("rules") / "_tables"


def _expected_batches() -> list[tuple[int, int, int]]:
    """(tokens with padding, real tokens, labels that count) of the batches plain_loop.py makes."""
    import torch

    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(4, 24, (48,), generator=generator).tolist()
    groups = [lengths[i : i + 4] for i in range(0, 48, 4)]
    return [(4 * max(g), sum(g), sum(g) - 4) for g in groups]


@pytest.mark.parametrize(
    "form",
    [
        "dict",
        "tuple",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("encoding", "list", "tensor")),
    ],
)
def test_tokens_of_every_form_of_batch(tmp_path: Path, form: str) -> None:
    job = run(tmp_path, "plain_loop.py", "--form", form, "--epochs", "1", mode="profile", stop="never")
    assert faults(job) == []
    steps = job.rank.steps
    expected = _expected_batches()
    assert [step.tokens for step in steps] == [tokens for tokens, _, _ in expected]
    assert [step.shapes for step in steps] == [[(4, tokens // 4)] for tokens, _, _ in expected]
    assert [step.examples for step in steps] == [4] * 12
    real = [step.real_tokens for step in steps]
    if form in ("dict", "encoding"):
        assert real == [count for _, count, _ in expected]
    else:
        # without a mask the padding shows as the same id at the row ends, batch after batch
        known = [
            (seen, count) for seen, (_, count, _) in zip(real, expected, strict=True) if seen is not None
        ]
        assert len(known) >= 6
        assert all(seen == count for seen, count in known)
    supervised = [step.supervised_tokens for step in steps]
    assert supervised == ([None] * 12 if form == "tensor" else [count for _, _, count in expected])
    (loader,) = job.rank.loaders
    assert loader.batch_size == 4 and loader.batches == 12 and loader.examples == 48
    assert loader.num_workers == 0 and loader.pin_memory is False and loader.picklable is True
    assert loader.padding_side == "right" and loader.sampler == "SequentialSampler"


def test_sites_point_at_the_calls(tmp_path: Path) -> None:
    job = run(tmp_path, "plain_loop.py", "--batch-size", "3", mode="profile")
    source = (SCRIPTS / "plain_loop.py").read_bytes().splitlines()
    if sys.version_info < (3, 11):
        assert all(site.span is None for site in job.observation.sites)
        return
    texts = {}
    for site in job.observation.sites:
        assert site.file == str(SCRIPTS / "plain_loop.py") and site.editable
        span = site.span
        assert span is not None
        lines = source[span.line - 1 : span.end_line]
        lines[-1] = lines[-1][: span.end_byte_column]
        lines[0] = lines[0][span.byte_column :]
        text = b"\n".join(lines).decode()
        assert isinstance(ast.parse(text.strip(), mode="eval").body, ast.Call)
        texts[site.kind] = text
    assert texts["backward"] == "loss.backward()"
    assert texts["optimizer_step"] == "optimizer.step()"
    assert texts["zero_grad"] == "optimizer.zero_grad()"
    assert texts["model_call"] == "model(**batch)"
    assert texts["device_read"] == "loss.item()"
    assert texts["optimizer_create"].startswith("torch.optim.AdamW(")
    loader = job.site("loader")
    assert texts["loader"].startswith("DataLoader(")
    assert loader.arguments["batch_size"].text == "3" and loader.arguments["batch_size"].origin == "cli"
    assert loader.detail["flag.batch_size"] == "--batch-size"
    assert loader.arguments["collate_fn"].origin == "variable"
    optimizer = job.site("optimizer_create")
    assert optimizer.arguments["lr"].text == "0.01" and optimizer.arguments["lr"].origin == "literal"
    assert optimizer.callee == "torch.optim.adamw.AdamW"
    read = job.site("device_read")
    assert read.detail["device"] == "cpu" and read.total_ms is not None
    assert read.calls == len(job.rank.steps) - 1  # the job was stopped inside the last update
    assert job.rank.counters["device_reads"] == read.calls
    assert [frame.function for frame in read.stack] == ["main", "<module>"]


def test_plain_loop_facts(tmp_path: Path) -> None:
    job = run(tmp_path, "plain_loop.py", "--epochs", "2", mode="profile")
    rank = job.rank
    assert rank.model is not None
    assert rank.model.class_name == "Model" and not rank.model.transformers
    assert rank.model.parameters == rank.model.trainable_parameters == 64 * 32 + 2 * (33 * 32) + 33 * 64
    assert rank.model.embedding_parameters == 64 * 32 and rank.model.embedding_tied is False
    assert rank.model.parameter_dtypes == {"float32": rank.model.parameters}
    assert rank.model.layers == 2 and rank.model.dropout_active is False
    (optimizer,) = rank.optimizers
    assert optimizer.class_name == "AdamW" and optimizer.implementation == "for-loop"
    assert optimizer.fused_available is True and optimizer.fused is None
    assert optimizer.state_bytes is not None and optimizer.state_bytes >= 2 * 4 * rank.model.parameters
    assert optimizer.site == job.site("optimizer_create").id
    assert rank.forward is not None
    assert rank.forward.keys == ["input_ids", "attention_mask", "labels"]
    assert rank.forward.attention_mask and rank.forward.attention_mask_all_ones is False
    assert rank.sharding is not None and rank.sharding.kind == "none"
    assert rank.checkpointing is not None and rank.checkpointing.enabled is False
    assert rank.flags is not None and not rank.flags.anomaly_detection
    assert rank.environment.packages["torch"] == rank.environment.torch
    assert rank.memory is not None and rank.memory.device_bytes is None
    assert rank.memory.host_peak_rss_bytes is not None and rank.memory.host_peak_rss_bytes > 50 << 20
    assert rank.startup_s is not None and 0 < rank.startup_s < 60
    assert job.observation.trainer_kind is None and job.observation.epochs_planned == 2.0
    assert rank.hook_ms_total > 0


def test_trainer_facts(tmp_path: Path) -> None:
    job = run(tmp_path, "trainer_loop.py", "--output_dir", "out", mode="profile", stop="never")
    assert faults(job) == []
    rank = job.rank
    assert job.observation.trainer_kind == "transformers" and job.observation.carrier == "TrainingArguments"
    assert job.observation.max_steps_planned == 12
    assert rank.model is not None and rank.model.model_type == "llama"
    assert rank.model.attn_implementation == "sdpa" and rank.model.supports_sdpa is True
    assert rank.model.layers == 2 and rank.model.vocab_size == 96 and rank.model.is_encoder is False
    kinds = {phase.kind for phase in rank.phases}
    assert {"checkpoint", "evaluation"} <= kinds
    tagged = {tag for step in rank.steps for tag in step.tags}
    assert {"checkpoint", "evaluation"} <= tagged
    assert all(step.tokens is not None and step.real_tokens is not None for step in rank.steps)
    assert all(step.examples == 4 for step in rank.steps)
    carrier = job.site("carrier")
    assert carrier.editable and carrier.arguments["per_device_train_batch_size"].origin == "cli"
    assert carrier.detail["flag.per_device_train_batch_size"] == "--batch"
    assert carrier.arguments["gradient_accumulation_steps"].text == "2"
    assert carrier.detail["field.dataloader_num_workers"] == 0
    recipe = rank.recipe
    assert recipe is not None and recipe.seed == 3 and recipe.adapter is None and recipe.loaded == []
    assert recipe.optimizer["lr"] == 5e-05 and recipe.optimizer["weight_decay"] == 0.0
    (schedule,) = recipe.schedules
    assert schedule.function == "_get_linear_schedule_with_warmup_lr_lambda"
    assert schedule.arguments["num_training_steps"] == 12 and schedule.arguments["num_warmup_steps"] == 0
    assert recipe.dataset is not None and recipe.dataset.class_name == "list"
    # the library builds the loader: known, and not for editing
    loaders = [site for site in job.observation.sites if site.kind == "loader"]
    assert loaders and not any(site.editable for site in loaders)


@pytest.mark.full
def test_trainer_arguments_from_a_parser(tmp_path: Path) -> None:
    words = [
        "--output_dir",
        "out",
        "--use_cpu",
        "--max_steps",
        "8",
        "--per_device_train_batch_size",
        "4",
        "--report_to",
        "none",
    ]
    job = run(tmp_path, "trainer_loop.py", "--parser", *words, mode="profile", steps=2, warmup_steps=3)
    assert job.exit_code == 0, job.errors[-2000:]
    carrier = job.site("carrier")
    assert carrier.detail["filled_by"] == "parse_args_into_dataclasses" and not carrier.editable
    assert carrier.detail["origin.per_device_train_batch_size"] == "cli"
    assert "origin.gradient_accumulation_steps" not in carrier.detail


def test_sharded_facts(two_fsdp2_ranks: Job) -> None:
    job = two_fsdp2_ranks
    for rank in job.observation.ranks:
        sharding = rank.sharding
        assert sharding is not None and sharding.kind == "fsdp2" and sharding.units == 4
        assert sharding.mesh == [2] and sharding.param_dtype == "bf16" and sharding.reduce_dtype == "fp32"
        assert sharding.reshard_after_forward is True and sharding.gradient_syncs_per_step == 1.0
        model = rank.model
        assert model is not None and model.class_name == "Model"
        whole = 50 * 16 + 3 * (17 * 32 + 33 * 16) + 17 * 50
        assert model.parameters == whole
        assert model.local_parameter_bytes is not None and model.local_parameter_bytes < 4 * whole * 0.6
        (optimizer,) = rank.optimizers
        assert optimizer.gradient_dtypes == {"float32": whole} and set(optimizer.state_dtypes) == {"float32"}
        (group,) = rank.process_groups
        assert group.size == 2 and group.ranks == [0, 1] and "gloo" in group.backend
    traces = summarize([job.folder / job.observation.ranks[0].trace_file], tables_dir=TABLES, processes=1)
    facts = derive_facts(job.observation, traces)
    assert facts.value("comm.mesh") == ["2"] and facts.value("comm.group_sizes") == ["2"]
    (text,) = facts.value("comm.process_groups")
    assert text.startswith("default_pg: 2 ranks, ") and "gloo" in text
    assert facts.facts["comm.gib_per_step"].state == "absent"  # gloo's calls carry no sizes
    assert facts.value("comm.collectives_per_step") > 0
    assert facts.value("precision.gradient_dtype") == "fp32"
    assert facts.value("precision.optimizer_state_dtype") == "fp32"
    assert facts.value("memory.gradients_gib") == pytest.approx(2 * whole / 2**30, rel=0.1)
    shards = [site for site in job.observation.sites if site.kind == "shard"]
    assert len(shards) == 2 and all(site.editable and site.ranks == [0, 1] for site in shards)


def test_hybrid_model_facts(tmp_path: Path) -> None:
    job = run(tmp_path, "hybrid_loop.py", mode="profile", stop="never", steps=2, warmup_steps=3)
    assert job.exit_code == 0, job.errors[-2000:]
    assert faults(job) == []
    rank = job.rank
    model, forward, checkpointing = rank.model, rank.forward, rank.checkpointing
    assert model is not None and model.model_type == "qwen3_next" and model.attn_implementation == "eager"
    assert model.layer_types == {"linear_attention": 3, "full_attention": 1}
    assert not model.compiled and not model.lora
    kernels = {kernel.name: kernel for kernel in model.kernels}
    assert not kernels["chunk_gated_delta_rule"].fast
    assert kernels["chunk_gated_delta_rule"].role == "linear_attention"
    assert kernels["chunk_gated_delta_rule"].reason == "absent"
    assert kernels["causal_conv1d_fn"].reason == "absent" and not kernels["causal_conv1d_fn"].fast
    assert forward is not None and forward.position_ids_restart is True
    assert forward.use_cache_argument is False and not forward.attention_mask
    assert checkpointing is not None and checkpointing.enabled and checkpointing.kind == "transformers"
    assert checkpointing.reentrant is False and checkpointing.layers == 4
    # no DataLoader: counted from the model's own calls once that is clear
    assert [step.tokens for step in rank.steps[-3:]] == [24, 24, 24]
    assert [step.real_tokens for step in rank.steps[-3:]] == [24, 24, 24]
    assert rank.loaders == []
    enabled = job.site("checkpoint_enable")
    assert enabled.callee.endswith("gradient_checkpointing_enable") and enabled.editable
    assert job.site("model_create").arguments["attn_implementation"].text == "'eager'"


def test_evaluation_batches_are_not_training(tmp_path: Path) -> None:
    job = run(tmp_path, "update_styles.py", "--style", "evaluates", mode="profile", stop="never")
    steps = job.rank.steps
    assert len(steps) == 60 and all(step.tokens == 32 for step in steps)
    phases = [phase for phase in job.rank.phases if phase.kind == "evaluation"]
    assert len(phases) == 12 and all(phase.duration_ms > 0 for phase in phases)
    assert {step.index for step in steps if "evaluation" in step.tags} == set(range(6, 60, 5))
    site = job.site("evaluation")
    assert site.callee == "validate" and site.editable and site.span is not None and site.calls == 12


def test_accumulation_and_zeroed_gradients(tmp_path: Path) -> None:
    job = run(tmp_path, "update_styles.py", "--style", "accumulate", mode="profile", stop="never")
    assert {step.micro_batches for step in job.rank.steps} == {3}
    assert {step.tokens for step in job.rank.steps} == {96}
    assert job.rank.counters["zero_grad_to_zeros"] == 20
    assert job.site("clip_grad").arguments["max_norm"].text == "1.0"


def test_accelerate_autocast(tmp_path: Path) -> None:
    job = run(tmp_path, "accelerate_loop.py", "--precision", "bf16", mode="profile")
    assert job.observation.trainer_kind == "accelerate"
    assert job.rank.forward is not None and job.rank.forward.autocast_dtype == "bf16"
    assert {step.tokens for step in job.rank.steps} == {64}
    assert job.site("backward").editable and job.site("optimizer_step").editable


def test_switches_left_on(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    job = run(tmp_path, "update_styles.py", "--style", "switches", mode="profile")
    flags = job.rank.flags
    assert flags is not None and flags.anomaly_detection and flags.deterministic and flags.profiler_active
    assert job.rank.trace_file is None
    assert any("profiler of its own" in note for note in job.observation.notes)
    assert job.rank.optimizers[0].implementation == "fused" and job.rank.optimizers[0].fused is True
    switched = {site.callee for site in job.observation.sites if site.kind == "debug_flag"}
    assert switched == {
        "torch.autograd.set_detect_anomaly",
        "torch.use_deterministic_algorithms",
        "torch.profiler.profile",
    }
    assert job.rank.counters["gc_collect"] == job.site("gc_collect").calls == len(job.rank.steps) - 1
    told(record_property, "python", "a profiler of its own", "1 rank, stopped, no second trace, and said so")


def test_a_debugger_that_is_only_loaded_is_not_attached(tmp_path: Path) -> None:
    """As in every Jupyter kernel; a trace function is one that is called."""
    code = (
        "import sys, types, torch\n"
        "sys.modules['debugpy'] = sys.modules['pydevd'] = types.ModuleType('debugpy')\n"
        "m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "if sys.argv[1:]: sys.settrace(lambda *_: None)\n"
        "for _ in range(12): m(torch.ones(1, 2)).sum().backward(); o.step(); o.zero_grad()\n"
    )
    (tmp_path / "job.py").write_text(code)
    for words in ((), ("traced",)):
        job = run(tmp_path / "-".join(("x", *words)), str(tmp_path / "job.py"), *words, mode="profile")
        assert job.rank.flags is not None and job.rank.flags.debugger is bool(words)


@pytest.mark.full
def test_where_the_loader_spends_its_time(tmp_path: Path) -> None:
    job = run(tmp_path, "plain_loop.py", mode="profile", stop="never")
    counters = job.rank.counters
    waited = sum(step.loader_wait_ms or 0.0 for step in job.rank.steps)
    assert 0 < counters["loader_collate_ms"] < counters["loader_fetch_ms"] < 1.1 * waited


@pytest.mark.full
def test_trl_facts(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    job = run(tmp_path, "trl_loop.py", mode="profile", stop="never")
    assert job.exit_code == 0, job.errors[-2000:]
    assert faults(job) == []
    assert job.observation.trainer_kind == "trl" and job.observation.carrier == "SFTConfig"
    forward = job.rank.forward
    assert forward is not None and forward.position_ids_restart is True
    assert {"cu_seq_lens_q", "seq_idx"} <= set(forward.boundary_arguments)
    carrier = job.site("carrier")
    assert carrier.editable and carrier.arguments["packing"].text == "True"
    checkpointing = job.rank.checkpointing
    assert checkpointing is not None and checkpointing.enabled and checkpointing.layers == 2
    assert all(step.examples and step.real_tokens == step.tokens for step in job.rank.steps)


@pytest.mark.full
def test_trl_settings_from_a_file(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    settings = tmp_path / "sft.yaml"
    lines = (
        "output_dir: out",
        "per_device_train_batch_size: 4",
        "max_steps: 3",
        "use_cpu: true",
        "bf16: false",
    )
    settings.write_text("\n".join((*lines, "report_to: none", "max_length: 64")) + "\n")
    job = run(
        tmp_path, "trl_loop.py", "--config", str(settings), "--max_steps", "9", mode="profile", stop="never"
    )
    assert job.exit_code == 0, job.errors[-2000:]
    carrier = job.site("carrier")
    assert carrier.detail["filled_by"] == "parse_args_and_config" and not carrier.editable
    assert carrier.detail["config_file"] == str(settings)
    assert carrier.detail["origin.per_device_train_batch_size"] == "config"
    assert carrier.detail["origin.max_steps"] == "cli" and job.observation.max_steps_planned == 9
