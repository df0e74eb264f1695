"""Hooks on torch that steps need, installed when `import torch` has ended: backward, optimizers."""

from __future__ import annotations

import functools
import sys
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from . import (
    checkpoint_facts,
    compile_watch,
    evaluation,
    finder,
    flag_facts,
    graph_facts,
    hook_calls,
    hook_loader,
    hook_logging,
    hook_phases,
    models,
    module_state,
    optimizer_facts,
    own_frames,
    ranks,
    remade_optimizers,
    rewalked,
    seeding,
    sharding_facts,
    sites,
    stop,
    tracing,
    uncompiled,
    wrapping,
)
from .core import RUN, call_parity, core, hook
from .steps import steps

_backward_seen = False


def install(torch: ModuleType) -> None:
    """Everything that is hooked on torch; what only `profile` mode needs is installed by the callee."""
    wrapping.use_torch(torch)
    if core.settings.seed is not None:
        seeding.seed_all(core.settings.seed, torch)
    _make_parity()
    if core.settings.seed_shift:
        seeding.shift_seeds(core.settings.seed_shift, torch)
    _backward(torch)
    _optimizers()
    hook_calls.install(torch)
    hook_loader.install(torch)
    hook_phases.install(torch)
    own_frames.install(torch)
    module_state.install(torch)
    if core.settings.longest_first:
        from . import longest_first

        longest_first.install(torch)
    finder.when_imported("torch.utils.checkpoint", checkpoint_facts.install)
    if core.settings.memory_probe:
        from . import block_memory

        finder.when_imported("torch.utils.checkpoint", block_memory.install)
    finder.when_imported("torch.distributed.distributed_c10d", _process_group)
    finder.when_imported("triton.compiler.compiler", compile_watch.install_triton)
    finder.when_imported("triton.runtime.autotuner", compile_watch.install_autotuner)
    if core.settings.full:
        from . import costly_lines, hook_fetching, hook_models, hook_reads, recipe

        costly_lines.install(torch)
        hook_fetching.install(torch)
        hook_reads.install(torch)
        recipe.install(torch)
        finder.when_imported("transformers.modeling_utils", hook_models.install_modeling)
        finder.when_imported("transformers.models.auto.auto_factory", hook_models.install_auto)
        finder.when_imported("transformers.configuration_utils", hook_models.install_configuration)
    torch.cuda._lazy_call(ranks.cuda_started)


def _make_parity() -> None:
    if core.settings.mode != "parity":
        return
    from .boot import optional

    module = optional("parity")
    if module is None:
        return
    try:
        core.parity = module.Parity(core.settings, core.emit)
    except Exception:
        core.sink.fault("parity.Parity")


def _backward(torch: Any) -> None:
    @hook
    def begins(tensors: Any, args: Any, kwargs: Any) -> None:
        """`args`: what follows the tensors; the third one is create_graph."""
        stop.check()
        if not steps.backward_begins():
            return
        if kwargs.get("create_graph", args[2] if len(args) > 2 else False):
            hook_calls.count("backwards_with_graph")
        _first_backward(torch)
        models.training_in_mode()
        evaluation.over()
        sharding_facts.backward_begins()
        flag_facts.backward_begins(torch, tracing.running())
        graph_facts.backward_begins(tensors, steps.index)
        rewalked.backward_begins(tensors, args, kwargs, steps)
        call_parity("before_backward", tensors)
        if core.settings.full:
            sites.record("backward", "torch.Tensor.backward", frame=sys._getframe(2))

    @hook
    def ended(completed: bool) -> None:
        if steps.backward_ended(completed):
            call_parity("after_backward")
            if core.settings.memory_probe:
                from . import block_memory

                block_memory.backward_ended()

    original_method = torch.Tensor.backward
    original_function = torch.autograd.backward

    compiling = torch.compiler.is_compiling

    @functools.wraps(original_method)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original_method(self, *args, **kwargs)
        begins((self,), args, kwargs)
        completed = False
        try:
            result = original_method(self, *args, **kwargs)
            completed = True
            return result
        finally:
            ended(completed)

    @functools.wraps(original_function)
    def function(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original_function(tensors, *args, **kwargs)
        begins(tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,), args, kwargs)
        completed = False
        try:
            result = original_function(tensors, *args, **kwargs)
            completed = True
            return result
        finally:
            ended(completed)

    torch.Tensor.backward = method
    torch.autograd.backward = function
    try:
        uncompiled.keep_out(torch, [method.__code__, function.__code__], [RUN])
    except Exception:
        core.sink.fault("uncompiled.keep_out")


def _first_backward(torch: Any) -> None:
    global _backward_seen
    if _backward_seen:
        return
    _backward_seen = True
    ranks.promote("backward")
    if core.settings.full:
        hook_logging.watch_streams()
    models.before_training(torch, at_backward=True)
    core.emit("first_backward", {"at_s": perf_counter_ns() / 1e9})


def _optimizers() -> None:
    module: Any = sys.modules["torch.optim.optimizer"]

    @hook
    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        stop.check()
        ranks.promote("optimizer step")
        models.remember_optimizer(optimizer)
        if remade_optimizers.before_step(optimizer):
            hook_calls.count("optimizers_remade")
        _first_backward(sys.modules["torch"])  # of a job that gets its gradients in another way
        rewalked.update_begins()
        call_parity("before_optimizer", optimizer)
        if core.settings.full:
            optimizer_facts.gradients(optimizer)
            sites.record("optimizer_step", "torch.optim.Optimizer.step", frame=sys._getframe(2))
        closure = kwargs.get("closure", args[-1] if args else None)
        steps.optimizer_begins(optimizer, callable(closure))

    @hook
    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        steps.optimizer_ended()
        remade_optimizers.after_step(optimizer)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def _process_group(module: Any) -> None:
    original = module.init_process_group

    @hook
    def started() -> None:
        ranks.promote("init_process_group")

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        started()
        return result

    module.init_process_group = init_process_group
    package: Any = sys.modules.get("torch.distributed")
    if package is not None:
        package.init_process_group = init_process_group
