"""Shims that take an inefficiency out of a training loop: they change what they say, and nothing else."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from autotune.apply.shims import render_shim

torch = pytest.importorskip("torch")


def shim(name: str, **arguments: object) -> Any:
    import types

    module = types.ModuleType(f"autotune_{name}")
    exec(compile(render_shim(f"shims/{name}.py.j2", arguments), module.__name__, "exec"), module.__dict__)
    return module


def steps(model: Any, count: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def linear_calls(profiler: Any) -> int:
    return sum(event.count for event in profiler.key_averages() if event.key == "aten::linear")


def test_a_profiler_stops_after_three_steps_and_stays_readable(tmp_path: Path) -> None:
    module = shim("short_profile")
    profiler = module.stop_early(torch.profiler.profile())
    profiler.start()
    steps(torch.nn.Linear(4, 4), 8)
    assert not torch.autograd._profiler_enabled()
    profiler.stop()  # the job's own end of it
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    assert linear_calls(profiler) == 3


def test_a_profiler_of_a_with_statement_stops_early_and_a_scheduled_one_does_not() -> None:
    module = shim("short_profile")
    with module.stop_early(torch.profiler.profile()) as profiler:
        steps(torch.nn.Linear(4, 4), 5)
        assert not torch.autograd._profiler_enabled()
    assert linear_calls(profiler) == 3
    with module.stop_early(torch.profiler.profile()) as short:
        steps(torch.nn.Linear(4, 4), 2)
        assert torch.autograd._profiler_enabled()
    assert linear_calls(short) == 2 and not torch.autograd._profiler_enabled()
    planned = torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=2))
    start = planned.start
    assert module.stop_early(planned) is planned and planned.start == start


class Tower(torch.nn.Module):
    """A part that no optimizer gets, in front of one that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.tower(x))).square().sum()


def test_what_no_optimizer_holds_gets_no_gradient_until_one_does() -> None:
    module = shim("frozen_parts")
    torch.manual_seed(0)
    model = Tower()
    twin = copy.deepcopy(model)
    assert module.run(model, torch.ones(3, 4)).requires_grad  # no optimizer yet: nothing is decided
    assert model.tower.weight.requires_grad
    optimizer, other = (torch.optim.AdamW(m.head.parameters(), lr=0.1) for m in (model, twin))
    with torch.no_grad():
        module.run(model, torch.ones(3, 4))
    assert model.tower.weight.requires_grad  # an evaluation decides nothing
    for n in range(4):
        x = torch.full((3, 4), float(n))
        for one, call in ((model, module.run), (twin, lambda m, *a: m(*a))):
            call(one, x).backward()
        optimizer.step(), other.step()
        optimizer.zero_grad(), other.zero_grad()
    assert model.tower.weight.grad is None and twin.tower.weight.grad is not None
    assert not model.tower.weight.requires_grad
    assert torch.equal(model.head.weight, twin.head.weight)
    optimizer.add_param_group({"params": model.tower.parameters()})  # thawed later in the run
    assert all(p.requires_grad for p in model.parameters())
    module.run(model, torch.ones(3, 4)).backward()
    assert model.tower.weight.grad is not None


class Stack(torch.nn.Module):
    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)) for _ in range(3)
        )
        self.head = torch.nn.Linear(4, 4)
        if tied:
            self.head.weight = self.layers[0][0].weight

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture
def mesh() -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def units(model: Any) -> list[str]:
    from torch.distributed.fsdp import FSDPModule

    return [name for name, part in model.named_modules() if isinstance(part, FSDPModule)]


def test_pieces_of_layers_become_one_unit_for_each_layer(mesh: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    module = shim("layer_units")
    torch.manual_seed(0)
    model = Stack()
    expected = model(torch.ones(2, 4))
    for part in list(model.modules()):
        if isinstance(part, torch.nn.Linear):
            module.part_of_layer(fully_shard, part, mesh=mesh)
    with pytest.raises(RuntimeError, match="before the model that it is part of was sharded"):
        model(torch.ones(2, 4))
    assert module.by_layer(fully_shard, model, mesh=mesh) is model
    assert units(model) == ["", "layers.0", "layers.1", "layers.2"]
    assert torch.equal(model(torch.ones(2, 4)), expected)


def test_layers_that_cannot_be_units_are_refused(mesh: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    with pytest.raises(ValueError, match="share weights"):
        shim("layer_units").by_layer(fully_shard, Stack(tied=True), mesh=mesh)
    with pytest.raises(ValueError, match="no list of equal layers"):
        shim("layer_units").by_layer(fully_shard, torch.nn.Linear(4, 4), mesh=mesh)
    module = shim("layer_units")
    module.part_of_layer(fully_shard, torch.nn.Linear(4, 4), mesh=mesh)
    with pytest.raises(ValueError, match="no part of the model"):
        module.by_layer(fully_shard, Stack(), mesh=mesh)


def rank_of_exchange(rank: int, port: int, folder: str) -> None:
    """Seven micro-batches in steps of three, three and one: weights with and without the shim."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    late = shim("one_exchange", accumulation=3)
    mesh = init_device_mesh("cpu", (2,))
    exchanges: list[int] = []

    def hook(seen, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations of a hook
        seen.append(1)
        work = dist.all_reduce(bucket.buffer().div_(2), async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    def replicated() -> Any:
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        model.register_comm_hook(exchanges, hook)
        return model

    out = {}
    for kind, make in (
        ("replicated", replicated),
        ("sharded", lambda: fully_shard(torch.nn.Linear(4, 2), mesh=mesh)),
    ):
        for wrap in (lambda m: m, late.once_per_step):
            torch.manual_seed(0)
            model = wrap(make())
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            exchanges.clear()
            for micro in range(1, 8):
                x = torch.full((2, 4), float(micro + 10 * rank))
                model(x).square().mean().backward()
                if micro % 3 == 0 or micro == 7:
                    late.finish()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            late._late.clear()
            weights = [getattr(p, "full_tensor", p.clone)().detach() for p in model.parameters()]
            out.setdefault(kind, []).append((len(exchanges), weights))
    if rank == 0:
        torch.save(out, os.path.join(folder, "out.pt"))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.job
def test_gradients_are_exchanged_once_per_step_and_none_is_lost(tmp_path: Path) -> None:
    import socket

    import torch.multiprocessing as multiprocessing

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(rank_of_exchange, (port, str(tmp_path)), nprocs=2)
    out = torch.load(tmp_path / "out.pt")
    assert [count for count, _ in out["replicated"]] == [7, 2]  # the last step is exchanged by finish()
    for kind in ("replicated", "sharded"):
        (_, weights), (_, same) = out[kind]
        torch.testing.assert_close(weights, same)
    torch.testing.assert_close(out["replicated"][0][1], out["sharded"][0][1])


def test_a_model_that_is_not_data_parallel_is_refused() -> None:
    with pytest.raises(ValueError, match="neither data parallel"):
        shim("one_exchange", accumulation=2).once_per_step(torch.nn.Linear(2, 2))
