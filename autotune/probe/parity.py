"""What a rerun is compared by: losses, gradients, examples and weights of the first optimizer steps.

Runs in processes of its own, never where time is measured: values are read from the device here.
"""

from __future__ import annotations

import os
import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import finder
from .full_precision import FullPrecision, watch_autocast
from .parity_examples import Layout, bound, flatten, read
from .parity_isolation import Isolation, logits_of
from .parity_modules import Modules
from .parity_reduction import Contributions
from .parity_weights import BUCKETS, gradient_sketch, plain_name, weights_digest

SKETCHED_STEPS = 3  # later gradients differ by the divergence of the weights anyway
_NLL_ROWS = 256
_RANDOM_STEPS = 2  # in which a draw of random numbers is looked for
_RECENT_BATCHES = 6


@dataclass
class Micro:
    """What the micro-batches of one optimizer step add up to."""

    digest: int = 0
    examples: int = 0
    calls: int = 0  # of the model
    supervised: int | None = 0
    weight: int = 0  # labels since the last backward
    losses: list[Any] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    example_losses: dict[str, list[float]] = field(default_factory=dict)

    def add(self, layout: Layout) -> None:
        digests = layout.digests()
        self.calls += 1
        self.digest += sum(digests)
        self.examples += len(digests)
        if layout.supervised is None or self.supervised is None:
            self.supervised = None
        else:
            self.supervised += layout.supervised
        self.weight += layout.supervised if layout.supervised is not None else len(digests)

    def absorb(self, other: Micro) -> None:
        """Add what turned out to belong to the same step."""
        self.digest += other.digest
        self.examples += other.examples
        self.calls += other.calls
        known = self.supervised is not None and other.supervised is not None
        self.supervised = (self.supervised or 0) + (other.supervised or 0) if known else None
        self.weight += other.weight
        self.example_losses.update(other.example_losses)


class Parity:
    def __init__(self, settings: Any, emit: Callable[..., None]) -> None:
        self.settings = settings
        self.emit = emit
        self.torch: Any = sys.modules["torch"]
        if settings.seed is not None:
            self._seed(int(settings.seed))
        if getattr(settings, "deterministic", False):
            self._deterministic()
        self.emit("parity", {"seeded": settings.seed is not None})
        self.full = FullPrecision(self.torch) if getattr(settings, "full_precision", False) else None
        self.half = [] if self.full is not None else watch_autocast(self.torch)
        self.model: Any = None
        self.names: dict[int, str] = {}
        self.dropout: bool | None = None
        self.isolation = Isolation(self.torch) if settings.isolation else None
        self.contributions: Contributions | None = None  # several ranks
        self.modules: Modules | None = None  # until the first update
        self.loaded: deque[dict[str, Any]] = deque(maxlen=_RECENT_BATCHES)
        self.step = 0
        self.busy = False
        self.layout: Layout | None = None
        self.random: list[Any] = []
        # The end of a step is known late: calls of the model after an update may belong to the next one.
        self.updated = False
        self.current, self.next = Micro(), Micro()
        self._clear()

    def _clear(self) -> None:
        self.norm: Any = None
        self.sketch: dict[str, list[float]] = {}
        self.squares: float | None = None

    @property
    def micro(self) -> Micro:
        """Where a call of the model counts."""
        return self.next if self.updated else self.current

    # --- set-up

    def _seed(self, seed: int) -> None:
        random.seed(seed)
        self.torch.manual_seed(seed)
        finder.when_imported("numpy", lambda numpy: numpy.random.seed(seed % 2**32))

    def _deterministic(self) -> None:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.torch.use_deterministic_algorithms(True, warn_only=True)
        self.torch.backends.cudnn.benchmark = False

    def before_first_step(self, model: Any, optimizers: list[Any]) -> None:
        """All ranks are here together: weights are added up over shards."""
        self.model = model
        named = list(model.named_parameters()) if model is not None else []
        if model is None:
            for number, optimizer in enumerate(optimizers):
                for place, parameter in enumerate(p for g in optimizer.param_groups for p in g["params"]):
                    named.append((f"optimizer{number}.{place}", parameter))
        self.dropout = model is not None and has_dropout(model, self.torch)
        half = (self.torch.float16, self.torch.bfloat16)
        values = None
        with self.torch.no_grad():
            digest = weights_digest(named, self.torch)
            if self.full is not None or any(p.dtype in half for _, p in named):
                values = weights_digest(named, self.torch, widened=True)
        fields = {"initial_weights_digest": digest, "initial_values_digest": values}
        self.emit("parity", {**fields, "dropout_active": self.dropout})
        if model is not None and self.full is None and self._several_ranks():
            self.contributions = Contributions(self.torch, model)
        path = self.settings.module_inputs
        if path and model is not None and self.full is None:
            keep, works = self.settings.keep_module_inputs, self._first_rank()
            self.modules = Modules(self.torch, model, path, keep=keep, works=works)
        if self.full is not None:
            self.full.exact_products()
            if model is not None:
                self.full.widen(model)

    def _first_rank(self) -> bool:
        return not self._several_ranks() or int(self.torch.distributed.get_rank()) == 0

    def _several_ranks(self) -> bool:
        distributed: Any = getattr(self.torch, "distributed", None)
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return False
        return int(distributed.get_world_size()) > 1

    # --- one micro-batch

    def batch(self, batch: Any) -> None:
        self.loaded.append(flatten(batch, self.torch))

    def before_forward(self, module: Any, args: Any, kwargs: Any) -> None:
        if self.busy:
            return
        self.busy = True
        try:
            self.layout = layout = read(bound(module, args, kwargs), list(self.loaded), self.torch)
            self.micro.add(layout)
            if self.isolation is not None and not self.isolation.done:
                found = self.isolation.consider(module, args, kwargs, layout)
                if found is not None:
                    self.emit("parity" if "isolation_error" in found else "isolation", found)
            if self.dropout is False and self.step < _RANDOM_STEPS:
                self.random = self._random_states()
        finally:
            self.busy = False

    def after_forward(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if self.busy:
            return
        if self.random:
            before, self.random = self.random, []
            drawn = any(not self.torch.equal(a, b) for a, b in zip(before, self._random_states()))  # noqa: B905
            if drawn:  # the forward drew random numbers, whatever its modules are called
                self.dropout = True
                self.emit("parity", {"dropout_active": True})
        if self.step + self.updated < self.settings.example_steps and self.layout is not None:
            self._add_example_losses(output, self.layout)

    def _random_states(self) -> list[Any]:
        found = [self.torch.get_rng_state()]
        if self.torch.cuda.is_available() and self.torch.cuda.is_initialized():
            found.append(self.torch.cuda.get_rng_state())
        return found

    def _add_example_losses(self, output: Any, layout: Layout) -> None:
        """Negative log likelihood of each example's labels: the same however examples are laid out."""
        logits = logits_of(output, self.torch)
        if logits is None or layout.shift is None or not layout.width:
            return
        torch = self.torch
        full = getattr(logits, "full_tensor", None)
        with torch.no_grad():
            logits = (full() if full is not None else logits).detach()
            logits = logits.reshape(-1, logits.shape[-1])
            if logits.shape[0] % layout.width:
                return  # not one per position
            for span in layout.spans:
                places = [n for n, label in enumerate(span.labels) if label != -100]
                if not places or span.begin + places[-1] - layout.shift >= logits.shape[0]:
                    continue
                total = 0.0
                for at in range(0, len(places), _NLL_ROWS):
                    part = places[at : at + _NLL_ROWS]
                    rows = torch.tensor([span.begin + n - layout.shift for n in part], device=logits.device)
                    labels = torch.tensor([span.labels[n] for n in part], device=logits.device)
                    scores = logits[rows].float()
                    nll = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
                    total += float(nll)
                key = f"{span.digest():032x}"
                known = self.micro.example_losses.setdefault(key, [0.0, 0.0])
                known[0] += total
                known[1] += len(places)

    def before_backward(self, tensors: Any) -> None:
        torch = self.torch
        if self.updated:  # the step goes on: another optimizer's backward
            self.updated = False
            self.current.absorb(self.next)
            self.next = Micro()
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                continue
            value = tensor.detach()
            full = getattr(value, "full_tensor", None)
            value = full() if full is not None else value
            value = value.to(torch.float64) if value.device.type != "mps" else value.float()
            self.current.losses.append((value.sum() if value.dim() else value).clone())
            self.current.weights.append(self.current.weight)
            self.current.weight = 0

    # --- one optimizer step

    def grad_norm(self, value: Any) -> None:
        full = getattr(value, "full_tensor", None)
        self.norm = full() if full is not None else value

    def before_optimizer(self, optimizer: Any) -> None:
        self.updated = True
        if self.modules is not None:
            modules, self.modules = self.modules, None
            self.emit("parity", {"modules": modules.finish()})
        if not self.names and self.model is not None:
            # Only now: sharded models show whole parameters, other objects, between forward and backward.
            self.names = {id(p): plain_name(name) for name, p in self.model.named_parameters()}
        named: list[tuple[str, Any]] = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                named.append((self.names.get(id(parameter), f"parameter{len(named)}"), parameter))
        if self.full is not None:
            self.full.gradients(named)
        only = self.full is not None and self.settings.steps == 1
        wanted = BUCKETS if self.step < SKETCHED_STEPS else 0
        if not wanted and self.norm is not None:
            return
        with self.torch.no_grad():
            found = gradient_sketch(named, self.torch, wanted)
        if found:
            self.squares = (self.squares or 0.0) + sum(values[0] ** 2 for values in found.values())
        if wanted:
            self.sketch.update(found)
        if only:  # nothing follows that update: without gradients the optimizer makes no states for it
            for _, parameter in named:
                parameter.grad = None

    def step_end(self, index: int) -> None:
        norm = None if self.norm is None else float(self.norm)
        if norm is None and self.squares is not None:
            norm = self.squares**0.5
        # The model is only found at the first backward of a loop without a DataLoader: its call was missed.
        micro = self.current
        seen = micro.examples > 0 and micro.calls >= len(micro.losses)
        fields = {
            "index": index,
            "losses": [float(loss) for loss in micro.losses],
            "loss_weights": micro.weights,
            "grad_norm": norm,
            "examples_digest": f"{micro.digest % 2**128:032x}" if seen else None,
            "examples": micro.examples if seen else None,
            "supervised_tokens": micro.supervised if seen else None,
            "gradient_sketch": self.sketch,
            "example_losses": micro.example_losses,
        }
        if self.contributions is not None and index <= SKETCHED_STEPS:
            fields["own_gradient"] = self.contributions.take()
            if index == SKETCHED_STEPS:
                self.contributions.end()
                self.emit("parity", {"reduction_unknown": self.contributions.unknown})
        self.emit("parity_step", fields)
        if index == 1:
            left = self.half if self.full is None else self.full.first_step_over()
            done = self.full is not None and self.model is not None
            self.emit("parity", {"full_precision": done, "half_arithmetic": left})
        self.step = index
        self.updated = False
        self.current, self.next = self.next, Micro()
        self._clear()
        if index == self.settings.steps and self.model is not None:
            # Here, not at the end: all ranks are at the same step.
            with self.torch.no_grad():
                digest = weights_digest(list(self.model.named_parameters()), self.torch)
            self.emit("parity", {"final_weights_digest": digest})


def has_dropout(model: Any, torch: Any) -> bool:
    """Whether a module in training mode drops anything: dropout modules, or a rate kept as an attribute."""
    kinds = torch.nn.modules.dropout._DropoutNd
    for module in model.modules():
        if not module.training:
            continue
        if isinstance(module, kinds):
            if module.p > 0:
                return True
            continue
        for name, value in vars(module).items():
            named = "dropout" in name or name in ("drop_prob", "drop_path")
            if named and isinstance(value, float) and value > 0:
                return True
    return False
