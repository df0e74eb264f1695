"""Facts that follow from other facts: utilisation, memory forecasts, the projected time of the whole job."""

from __future__ import annotations

from autotune.facts.sheet import SheetBuilder
from autotune.facts.versions import delta_rule_backward_breaks
from autotune.records.observation import Observation

_GIB = 1024.0**3
# Bytes that the backward keeps per layer, token and hidden unit at two bytes a value: inputs of the norms,
# of the projections and of the activation. 34 is the dense transformer's count; half as much again covers
# gated and recurrent layers.
_ACTIVATION_BYTES = 34.0 * 1.5
_FRAGMENTATION = 1.1


def derived_facts(sheet: SheetBuilder, observation: Observation | None, peak_tflops: float | None) -> None:
    """Fill in what follows. `peak_tflops` is the device's dense peak at the matrix products' precision."""
    _rates(sheet)
    if observation is not None and observation.ranks:
        _model_flops(sheet, observation, peak_tflops)
        _projection(sheet, observation)
    _busy(sheet)
    _loss(sheet)
    _memory(sheet)
    _kernel_guards(sheet)


def _rates(sheet: SheetBuilder) -> None:
    supervised = sheet.number("data.supervised_frac")
    padding = sheet.number("data.padding_frac")
    if supervised is not None and padding is not None:
        share = 1.0 - supervised * (1.0 - padding)
        sheet.put("loss.unsupervised_frac", max(0.0, share), "derived from labels and padding")


def _model_flops(sheet: SheetBuilder, observation: Observation, peak_tflops: float | None) -> None:
    lead = observation.ranks[0]
    model = lead.model
    rate = sheet.number("run.useful_tokens_per_s")
    if model is None or rate is None:
        return
    devices = max(1, sum(1 for rank in observation.ranks))
    matrix_parameters = model.parameters - (model.embedding_parameters or 0)
    per_token = 6.0 * matrix_parameters
    lengths = [n for loader in lead.loaders for n in loader.example_lengths]
    layers = sheet.number("model.attention_layers")
    note = "6 x parameters without the embedding lookup"
    if lengths and layers and model.attention_heads and model.head_dim:
        mean_square = sum(n * n for n in lengths) / sum(lengths)
        # forward and backward of the two attention products, half of them masked away
        per_token += 6.0 * layers * model.attention_heads * model.head_dim * mean_square
        note += f", plus causal attention over {len(lengths)} sampled lengths"
    if model.trainable_parameters < model.parameters:
        # frozen weights need no weight gradient: a third of their products falls away
        per_token -= 2.0 * max(0, matrix_parameters - model.trainable_parameters)
        note += ", without weight gradients of frozen parameters"
    tflops = per_token * rate / devices / 1e12
    sheet.put("run.model_tflops", tflops, "derived", note)
    if lead.environment.device_type == "cpu":
        sheet.not_applicable("run.mfu_frac", "no peak is known for this CPU")
        sheet.not_applicable("device.peak_tflops", "no peak is known for this CPU")
        return
    sheet.put(
        "device.peak_tflops", peak_tflops, "table of device peaks", why="this device is not in the table"
    )
    if peak_tflops:
        sheet.put("run.mfu_frac", tflops / peak_tflops, "derived", note)


def _projection(sheet: SheetBuilder, observation: Observation) -> None:
    step_ms = sheet.number("run.step_ms")
    per_epoch = sheet.number("run.optimizer_steps_per_epoch")
    epochs = sheet.number("run.epochs_planned")
    if step_ms is None:
        return
    steps: float | None = None
    basis = ""
    if observation.max_steps_planned:
        steps, basis = (
            float(observation.max_steps_planned),
            f"{observation.max_steps_planned} steps asked for",
        )
    elif per_epoch is not None:
        count = epochs if epochs is not None else 1.0
        steps = per_epoch * count
        basis = f"{count:g} epoch{'s' if count != 1 else ''} of {per_epoch:.0f} steps"
        if epochs is None:
            basis += " (the job's arguments name no number of epochs)"
    if steps is None:
        sheet.absent("run.projected_hours", "the number of steps of the whole job is not known")
        return
    seconds = steps * step_ms / 1000.0
    seconds += sheet.number("run.startup_s") or 0.0
    first = sheet.number("run.first_step_ms")
    if first is not None:
        seconds += max(0.0, first - step_ms) / 1000.0
    lead = observation.ranks[0]
    seen = max(1, len(lead.steps))
    pauses = sum(p.duration_ms for p in lead.phases if p.kind in ("checkpoint", "evaluation")) / 1000.0
    seconds += pauses * steps / seen
    sheet.put("run.projected_hours", seconds / 3600.0, "derived", basis + ", unprofiled steps")


def _busy(sheet: SheetBuilder) -> None:
    idle = sheet.number("launch.idle_profiled_frac")
    starved = sheet.number("launch.starved_frac")
    busy = sheet.number("launch.gpu_busy_frac")
    loader = sheet.number("data.loader_wait_frac") or 0.0
    exposed = sheet.number("comm.exposed_frac") or 0.0
    if busy is not None:
        _working(sheet, busy)
        unexplained = 1.0 - busy - loader
        bound = busy < 0.85 and unexplained > 0.10 and (starved is None or starved > 0.5)
        sheet.put("launch.bound", bound, "derived", "GPU busy time over the unprofiled step")
    elif idle is not None and starved is not None:
        bound = idle > 0.25 and idle - exposed > 0.15 and starved > 0.5
        sheet.put("launch.bound", bound, "derived", "profiled step only: the idle share is inflated")


def _working(sheet: SheetBuilder, busy: float) -> None:
    """What is left of the busy time without waiting inside collectives, which keeps a GPU busy too.

    Absent where nothing waits: then it says nothing that the busy time does not say.
    """
    step_ms, waiting_ms = sheet.number("run.step_ms"), sheet.number("comm.waiting_ms")
    if waiting_ms is None:
        waiting_ms = sheet.number("comm.exposed_ms") or 0.0
    if step_ms and waiting_ms > 0.0:
        working = max(0.0, busy - waiting_ms / step_ms)
        basis = "GPU busy time over the unprofiled step, less waiting in collectives"
        sheet.put("launch.gpu_working_frac", working, "derived", basis)


def _loss(sheet: SheetBuilder) -> None:
    vocabulary = sheet.number("model.vocab_size")
    tokens = sheet.number("data.tokens_per_step")
    world = sheet.number("run.world_size")
    micro = sheet.number("data.accumulation_steps")
    if vocabulary and tokens and world and micro:
        per_batch = tokens / world / micro
        sheet.put(
            "loss.logits_gib",
            per_batch * vocabulary * 4.0 / _GIB,
            "derived",
            "median micro-batch, fp32 logits",
        )


def _memory(sheet: SheetBuilder) -> None:
    # What was reserved holds cached blocks that the allocator gives back when memory is short.
    allocated, reserved = sheet.number("memory.peak_allocated_gib"), sheet.number("memory.peak_reserved_gib")
    peak = allocated * _FRAGMENTATION if allocated else reserved
    device = sheet.number("memory.device_gib")
    width = 1.0
    if sheet.value("run.has_gpu") is False:  # the host is the device, and values take four bytes
        host, share = sheet.number("memory.host_gib"), sheet.number("memory.host_peak_frac")
        device, width = host, 2.0
        peak = host * share if host is not None and share is not None else None
    layers, hidden = sheet.number("model.layers"), sheet.number("model.hidden_size")
    tokens, world = sheet.number("data.tokens_per_step"), sheet.number("run.world_size")
    micro = sheet.number("data.accumulation_steps")
    if sheet.value("memory.checkpointing") is not True:
        sheet.not_applicable("memory.peak_without_checkpointing_frac", "checkpointing is off")
        return
    if not (peak and device and layers and hidden and tokens and world and micro):
        return
    ranks_here = world if sheet.value("run.has_gpu") is False else 1.0
    extra = layers * hidden * (tokens / world / micro) * ranks_here * _ACTIVATION_BYTES * width / _GIB
    sheet.put(
        "memory.peak_without_checkpointing_frac",
        (peak + extra) / device,
        "derived",
        "measured peak (a tenth more for fragmentation on a GPU), plus an upper estimate of kept activations",
    )


def _kernel_guards(sheet: SheetBuilder) -> None:
    capability = sheet.number("device.compute_capability")
    triton = sheet.value("env.triton")
    if capability is None or not isinstance(triton, str):
        return
    blocked = delta_rule_backward_breaks(triton, capability)
    sheet.put("kernels.fla_backward_blocked", blocked, "derived from GPU and Triton version")
