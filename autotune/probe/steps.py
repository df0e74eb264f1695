"""What a step is: backward call(s) followed by optimizer call(s).

A step ends at the last optimizer return before the next backward. With a known number of optimizer calls
per step the end is seen at once; else the next backward or loader fetch proves it. Two optimizers,
accumulation, closures and an optimizer inside the backward all come out as one step per update. So does an
optimizer that is given gradients without a backward, and an update by hand (hand_updates). Backwards on
the same batch that end in updates of different optimizers (generator and discriminator) are one step too.
"""

from __future__ import annotations

import sys
from collections import deque
from time import perf_counter_ns
from typing import Any
from weakref import WeakSet

from . import (
    checkpoint_facts,
    compile_watch,
    device_clock,
    forward_calls,
    forward_uses,
    growth,
    hand_updates,
    models,
    passes,
    repeated_calls,
    segments,
    sharding_facts,
    tracing,
    windows,
)
from .batches import Batch
from .core import call_parity, core

WATCHED_WHOLE = 500  # steps of a watched run that are all written
_WATCHED_EVERY = 20  # after them every so-many-th one; every second of these after each _WATCHED_SAMPLE
_WATCHED_SAMPLE = 2000
_MOST_ODD = 5000  # steps that stand out
_STANDS_OUT = 1.5  # and those longer than this times the median
_FEW_ODD, _FAR_OUT = 200, 10.0  # when more than these and a fiftieth stand out, only those so much longer
_UPDATE = (
    "backwards", "optimizer_calls", "optimizer_ns", "loader_ns", "backward_ns", "fetched", "end_ns",
    "_before_backward_ns",
)  # fmt: skip
_NO_LOADER_STEPS = 2  # after so many steps without a loader's batch the model's calls are counted


class Steps:
    def __init__(self) -> None:
        self.index = 0  # steps that have ended
        self.tags: set[str] = set()
        self.waiting: deque[Batch] = deque(maxlen=256)  # fetched, not yet used by a backward
        self.used: list[Batch] = []
        self.training_loaders: WeakSet[Any] = WeakSet()
        self.begin_ns = 0
        self.end_ns = 0
        self.backwards = 0
        self.optimizer_calls = 0
        self.optimizer_ns = 0
        self.loader_ns = 0
        self.backward_ns = 0
        self.fetched = 0
        self._optimizer_start = 0
        self._backward_from_ns = 0
        self._hook_ns_before = 0
        self._calls_seen: list[int] = []  # optimizer calls of the last steps
        self._fetch_ratio: deque[tuple[int, int]] = deque(maxlen=6)
        self._backward_depth = 0
        self._backward_seen = False
        self._by_hand = False  # the step's update was no optimizer's
        self._without_loader = 0
        self._before_backward_ns = 0
        self.unstepped = 0  # backwards while no optimizer of torch has stepped yet
        self._stepped: set[int] = set()  # optimizers that stepped in this step
        self._held: dict[str, Any] | None = None  # an update that may be the first part of this step
        self._beside_from_ns = 0  # the loop runs code of its own since then
        self._beside_ns = 0
        self._every = _WATCHED_EVERY
        self._sampled = self._odd = 0

    def goes_on(self) -> None:
        """The loop begins something new: an update made by hand is over."""
        if self._updated_by_hand():
            self.end_ns = perf_counter_ns()
            self.close()

    def _updated_by_hand(self) -> bool:
        if self.backwards and hand_updates.over():
            self.optimizer_calls, self._by_hand = 1, True
        return self._by_hand

    def activity(self) -> None:
        """Something of the training loop happens: the first step begins no later than here."""
        if not self.begin_ns:
            self.begin_ns = perf_counter_ns()
            self._hook_ns_before = core.hook_ns

    def loaded(self, batch: Batch | None, wait_ns: int, evaluation: bool) -> None:
        """A loader gave a batch; `wait_ns`: time the loop spent in its __next__."""
        if evaluation:
            self.tags.add("evaluation")
            return
        self._split()
        self.close_if_over()
        self.loader_ns += wait_ns
        self.fetched += 1
        if batch is not None:
            self.waiting.append(batch)

    def backward_begins(self) -> bool:
        """Returns True for the outermost call."""
        self._backward_depth += 1
        if self._backward_depth > 1:
            return False
        self.goes_on()
        self._beside_from_ns = 0  # without a loader the forward lies in between
        self._backward_seen = True
        if self._may_go_on():
            self._hold()
        else:
            self.close_if_over()
        self.activity()
        self._backward_from_ns = perf_counter_ns()
        if not self.backwards and not self._before_backward_ns:
            self._before_backward_ns = self._backward_from_ns - self.begin_ns
        return True

    def backward_ended(self, completed: bool) -> bool:
        """Returns True when the outermost call has ended well."""
        self._backward_depth = max(0, self._backward_depth - 1)
        if self._backward_depth or not completed:
            return False
        self.backwards += 1
        self._beside_from_ns = perf_counter_ns()
        self.backward_ns += self._beside_from_ns - self._backward_from_ns
        hand_updates.backward_ended()
        growth.backward_ended()
        self.unstepped = self.unstepped + 1 if not self.index and not self.optimizer_calls else 0
        if self._optimizer_start:  # inside a closure: what came before is not the optimizer's own time
            self._optimizer_start = perf_counter_ns()
        tracing.backward_ended(self.backwards)
        if self.waiting:
            batch = self.waiting.popleft()
            self.used.append(batch)
            if batch.source is not None:
                self.training_loaders.add(batch.source)
                batch.source = None
        if self.optimizer_calls and self._as_usual():
            self.close()  # the optimizer runs inside the backward
        return True

    def called(self, batch: Batch | None) -> None:
        """A training call of the model, in a job without a DataLoader."""
        self.close_if_over()
        if batch is not None:
            self.waiting.append(batch)

    def _may_go_on(self) -> bool:
        """An update is over and a backward begins on the same batch: the next optimizer decides."""
        return (
            self.optimizer_calls > 0
            and not self._optimizer_start
            and self._held is None
            and len(models.optimizers()) > 1
        )

    def _hold(self) -> None:
        """Put the finished update aside until it is known whether the step goes on."""
        self._held = {name: getattr(self, name) for name in _UPDATE}
        self._held["used"] = self.used
        self._held["tags"] = set(self.tags)
        for name in _UPDATE:
            setattr(self, name, 0)
        self.used = []
        self.tags.clear()

    def _join(self) -> None:
        """The step goes on: what was put aside is its first part."""
        held, self._held = self._held, None
        if held is None:
            return
        first_ns = held["_before_backward_ns"]
        for name in _UPDATE:
            setattr(self, name, getattr(self, name) + (0 if name == "end_ns" else held[name]))
        self.end_ns, self._before_backward_ns = max(self.end_ns, held["end_ns"]), first_ns
        self.used = held["used"] + self.used
        self.tags |= held["tags"]

    def _split(self) -> None:
        """What was put aside was a step of its own."""
        held, self._held = self._held, None
        if held is None:
            return
        later = {name: getattr(self, name) for name in _UPDATE}
        used, tags, stepped = self.used, set(self.tags), self._stepped
        for name in _UPDATE:
            setattr(self, name, held[name])
        self.used = held["used"]
        self.tags.clear()
        self.tags |= held["tags"]
        self.close()
        for name, value in later.items():
            setattr(self, name, value)
        self.used, self._stepped = used, stepped - self._stepped
        self.tags |= tags

    def optimizer_begins(self, optimizer: Any, closure: bool) -> None:
        """Decides, where an update was put aside, whether it belongs to the running step.

        `closure`: the backwards come inside this call, so an update before it was a step of its own.
        """
        if (closure and self._held is None) or self._again_without_backward(optimizer):
            self.close_if_over()
        if self._held is not None:
            if id(optimizer) in self._stepped:
                self._split()
            else:
                self._join()
        self._stepped.add(id(optimizer))
        self.beside_ends()
        self.activity()
        self._optimizer_start = perf_counter_ns()

    def _again_without_backward(self, optimizer: Any) -> bool:
        """A job that computes its gradients without a backward: the same optimizer's next call is a step."""
        return not self._backward_seen and id(optimizer) in self._stepped

    def beside_ends(self) -> None:
        """An update or a fetch begins: what the loop did by itself since the last one is over."""
        if self._beside_from_ns:
            self._beside_ns += max(0, perf_counter_ns() - self._beside_from_ns)
            self._beside_from_ns = 0

    def in_backward(self) -> bool:
        return self._backward_depth > 0

    def in_optimizer(self) -> bool:
        return self._optimizer_start > 0

    def beside(self) -> bool:
        """Whether the loop runs code of its own, after a backward or an update."""
        return bool(self._beside_from_ns)

    def not_beside(self, elapsed_ns: int) -> None:
        """Something with a name of its own (a save, clipping) ended now and took so long."""
        if self._beside_from_ns:
            self._beside_from_ns = min(perf_counter_ns(), self._beside_from_ns + elapsed_ns)

    def optimizer_ended(self) -> None:
        now = self._beside_from_ns = perf_counter_ns()
        if not self.backwards and not self._backward_depth and self.index and self._backward_seen:
            # a call beyond the number this job usually makes: the step that just ended was longer
            self._calls_seen = []
            self.end_ns = now
            return
        if self._optimizer_start:
            self.optimizer_ns += now - self._optimizer_start
            self._optimizer_start = 0
        self.optimizer_calls += 1
        self.end_ns = now
        if not self._backward_depth and self._as_usual():
            self.close()

    def _as_usual(self) -> bool:
        """The last two steps made exactly as many optimizer calls as this one has by now."""
        usual = self._calls_seen
        return len(usual) >= 2 and self.optimizer_calls == usual[-1] == usual[-2]

    def finish(self) -> None:
        """The job ends: the last update is a step too."""
        self._split()
        if self._updated_by_hand():
            self.end_ns = self._beside_from_ns or perf_counter_ns()  # what follows may be anything
        if self.optimizer_calls:
            self.close(last=True)
        if core.settings.mode == "watch":
            segments.finish(self.index, self.end_ns / 1e9)

    def close_if_over(self) -> None:
        if self.optimizer_calls and not self._optimizer_start:
            self.close()

    def close(self, last: bool = False) -> None:
        """The step is over: write it, then let the windows act (they may stop the job here)."""
        previous_end = self.begin_ns
        end = self.end_ns
        self.begin_ns = end
        self.index += 1
        batches = self._batches_of_step()
        tags = set(self.tags)
        if self.index == 1:
            tags.add("first")
        if compile_watch.step_ended(self.index):
            tags.add("compile")
        checkpoint_facts.step_ended(self.backwards)
        forward_uses.step_ended(self.index, end)
        repeated_calls.step_ended(self.index, self.backwards, end)
        passes.step_ended(self.index)
        sharding_facts.step_ended()
        tags |= windows.tags(self.index)
        hook_ns = core.hook_ns
        step: dict[str, Any] = {
            "index": self.index,
            "end_s": end / 1e9,
            "duration_ms": round((end - previous_end) / 1e6, 4),
            "micro_batches": max(1, self.backwards),
            "hook_ms": round((hook_ns - self._hook_ns_before) / 1e6, 4),
            "tags": sorted(tags),
        }
        if not self._by_hand:
            step["optimizer_ms"] = round(self.optimizer_ns / 1e6, 4)
            step["beside_ms"] = round(self._beside_ns / 1e6, 4)
            if core.settings.full:
                known_ns = self.optimizer_ns + self.loader_ns + self.backward_ns + growth.forward_ns
                step["outside_ms"] = round(max(0, end - previous_end - known_ns) / 1e6, 4)
        if self.fetched:
            step["loader_wait_ms"] = round(self.loader_ns / 1e6, 4)
        if batches:
            for name, attribute in (
                ("examples", "examples"),
                ("tokens", "tokens"),
                ("elements", "elements"),
                ("real_tokens", "real"),
                ("supervised_tokens", "supervised"),
            ):
                values = [getattr(batch, attribute) for batch in batches]
                if all(value is not None for value in values):
                    step[name] = sum(values)
            step["shapes"] = [batch.shape for batch in batches][:64]
        self._without_loader = 0 if self.fetched else self._without_loader + 1
        if self._without_loader == _NO_LOADER_STEPS and self.index == _NO_LOADER_STEPS:
            forward_calls.no_loader()
        self._calls_seen = [*self._calls_seen[-3:], self.optimizer_calls]
        self._fetch_ratio.append((self.fetched, self.backwards))
        self._hook_ns_before = hook_ns
        self.tags.clear()
        self._stepped = set()
        self._by_hand = False
        self.backwards = self.optimizer_calls = self.optimizer_ns = self.loader_ns = self.fetched = 0
        self.backward_ns = 0
        self._beside_ns = 0
        stretch_over = False
        if core.settings.mode == "watch":
            step["before_backward_ms"] = self._before_backward_ns / 1e6
            stretch_over = segments.step_ended(step, previous_end / 1e9)
            del step["before_backward_ms"]
        self._before_backward_ns = 0
        duration_s = max(0.0, step["duration_ms"] - step["hook_ms"]) / 1e3  # as the job would have it
        if self._worth_writing(tags, duration_s):
            core.emit("step", step)
        growth.step_ended(self.index)
        device_clock.mark(sys.modules["torch"], self.index)
        call_parity("step_end", self.index)
        if not last:
            windows.boundary(self.index, duration_s, tags, step["micro_batches"], stretch_over)

    def _worth_writing(self, tags: set[str], duration_s: float) -> bool:
        """All steps; over a long watch a sample and what stands out, so the file does not grow for days."""
        if core.settings.mode != "watch" or self.index <= WATCHED_WHOLE:
            return True
        if self.index % self._every == 0:
            self._sampled += 1
            if self._sampled % _WATCHED_SAMPLE == 0:
                self._every *= 2
            return True
        times = duration_s / (windows.typical_s() or duration_s or 1.0)
        # on a busy machine many steps are a little slow: these say nothing, and are in the stretches
        many = self._odd > _FEW_ODD + self.index // 50
        stands_out = bool(tags) or times > (_FAR_OUT if many else _STANDS_OUT)
        self._odd += stands_out
        return stands_out and self._odd <= _MOST_ODD

    def _batches_of_step(self) -> list[Batch]:
        """One fetched batch per backward; all that were fetched when the job takes several per backward."""
        fetched = sum(f for f, _ in self._fetch_ratio) + self.fetched
        backwards = sum(b for _, b in self._fetch_ratio) + self.backwards
        without_backward = not self._backward_seen
        if without_backward or (len(self._fetch_ratio) >= 3 and fetched >= 1.5 * max(1, backwards)):
            self.used += list(self.waiting)
            self.waiting.clear()
        batches, self.used = self.used, []
        return batches


steps = Steps()
