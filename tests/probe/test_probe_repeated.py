"""Work done again or more of it in every step: fp64, metrics over everything, kept graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import SCRIPTS, TORCHRUN, faults, run
from probe_parts import part

from autotune.facts.everything import derive_facts

_LINES = (SCRIPTS / "repeated_loop.py").read_text().split("\n")


def _line(text: str) -> int:
    return 1 + next(number for number, line in enumerate(_LINES) if text in line)


def _facts(
    tmp_path: Path, words: str, steps: int = 14, script: str = "repeated_loop.py"
) -> tuple[Any, dict[str, Any]]:
    more = {"mode": "profile", "steps": steps, "warmup_steps": 6, "stop": "never"}
    job = run(tmp_path, script, words, **more)
    assert job.exit_code == 0 and faults(job) == [], job.errors[-2000:] + "\n".join(faults(job))
    facts = derive_facts(job.observation, None).facts
    return job, {name: fact.value for name, fact in facts.items()}


def _lines(job: Any, kind: str) -> list[int]:
    return [site.line for site in job.observation.sites if site.kind == kind]


@pytest.mark.job
def test_fp64_and_losses_kept_and_a_backward_for_each_loss(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "double,losses,apart")
    assert 0.4 < facts["model.rewalked_backward_frac"] <= 0.5 and facts["model.backwards_per_graph"] == 2.0
    assert facts["data.accumulation_steps"] == 1.0
    assert _line("            (logits.square()") in _lines(job, "backward")
    assert facts["data.passes_planned"] == 3.0
    assert facts["precision.fp64_inputs"] == ["x"] and facts["precision.parameter_dtype"] == "fp64"
    assert _lines(job, "double_precision") == [_line("    net.double()"), _line("        logits = net(x)")]
    assert facts["memory.kept_graph"] is True and facts["host.kept_name"] == "seen in Meter"
    assert _lines(job, "kept_values") == [_line("self.seen.append(value)")]


@pytest.mark.job
def test_a_metric_over_everything_takes_longer_in_every_step(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "metric,cast")
    assert facts["host.growth_trend"] > 0.3 and facts["host.growth_ms_per_step"] > 0.0
    assert facts["host.growth_seen_frac"] > 0.01 and facts["host.batch_trend"] == 0.0
    assert facts["host.kept_name"] == "values" and facts["memory.kept_graph"] is False
    assert facts["host.growing_function"] == "quantile" and facts["host.growing_line_frac"] > 0.5
    assert _lines(job, "kept_values") == [_line("values.append(")]
    (line,) = _lines(job, "growing_work")
    assert line in (_line("torch.cat(all_values)"), _line("return values.sort()"))
    _only_with_a_second_sign(job.observation)
    # it also gives its model fp64, which becomes fp32 before the first product
    assert facts["precision.fp64_inputs"] == ["x"] and facts["precision.parameter_dtype"] == "fp32"


def _only_with_a_second_sign(observation: Any) -> None:
    """A line that explains little of the growth, batches that grow or of unknown size, a GPU."""
    lead = observation.ranks[0]

    def values(**changes: Any) -> dict[str, Any]:
        ranks = [lead.model_copy(update=changes)]
        facts = derive_facts(observation.model_copy(update={"ranks": ranks}), None).facts
        return {name: fact.value for name, fact in facts.items()}

    slope_ms = values()["host.growth_ms_per_step"]
    growth = lead.growth.model_copy(update={"work_ms_per_step": 0.4 * slope_ms})
    assert values(growth=growth)["host.growing_line_frac"] == pytest.approx(0.4)
    for each, trend in ((5, 1.0), (None, None)):
        elements = [None if each is None else each * step.index for step in lead.steps]
        steps = [s.model_copy(update={"elements": n}) for s, n in zip(lead.steps, elements, strict=True)]
        assert values(steps=steps)["host.batch_trend"] == trend
    on_gpu = values(environment=lead.environment.model_copy(update={"device_type": "cuda"}))
    assert on_gpu["host.growth_trend"] is None and on_gpu["host.growing_line_frac"] is None


@pytest.mark.job
@pytest.mark.full
def test_a_running_sum_that_keeps_its_graph(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "sum")
    assert facts["memory.kept_graph"] is True and facts["host.kept_name"] == "running"
    assert _lines(job, "kept_values") == [_line("running = running + loss")]


@pytest.mark.job
@pytest.mark.full
def test_values_kept_for_the_end_are_no_growing_work(tmp_path: Path) -> None:
    _, facts = _facts(tmp_path, "collected")
    assert facts["host.kept_name"] == "values" and facts["memory.kept_graph"] is False
    assert facts["host.growth_frac"] < 0.05 or facts["host.growth_trend"] < 0.7
    assert 0.0 < facts["memory.kept_frac"] < 0.1 and facts["precision.fp64_inputs"] == []


@pytest.mark.job
def test_batches_that_get_longer_are_not_kept(tmp_path: Path) -> None:
    """Neither are losses in a window: of a fixed length, cut to the newest, or emptied now and then."""
    job, facts = _facts(tmp_path, "", steps=24, script="longer_batches.py")
    growth = job.observation.ranks[0].growth
    assert growth is not None and growth.steps > 20 and growth.kept == []
    assert facts["host.kept_values"] == 0 and facts["memory.kept_graph"] is None
    assert _lines(job, "kept_values") == []


@pytest.mark.job
def test_work_that_nothing_needs(tmp_path: Path) -> None:
    """An optimizer for every step, a graph of the gradients, a penalty in the graph, hooks, a permutation."""
    job, facts = _facts(tmp_path, "remade,second,penalty,hooks,draw")
    assert facts["optimizer.made_per_step"] > 0.9
    assert facts["optimizer.graph_of_gradients_per_step"] == 1.0
    assert facts["optimizer.gradient_calls_per_step"] == 0.0
    assert facts["model.penalised_frac"] == 1.0
    assert facts["host.hooked_modules"] == 41 and facts["host.hooks_frac"] > 0.05
    assert _lines(job, "forward_hook") == [_line("def norms(module")]
    assert facts["host.own_function"] == "draw" and facts["host.own_frac"] > 0.01
    assert _lines(job, "host_line") == [_line("return np.random.permutation")]


@pytest.mark.job
@pytest.mark.full
def test_nothing_of_that_in_a_plain_job(tmp_path: Path) -> None:
    _, facts = _facts(tmp_path, "plain")
    assert facts["optimizer.made_per_step"] == facts["optimizer.graph_of_gradients_per_step"] == 0.0
    assert facts["model.penalised_frac"] == 0.0
    # of a few looks nothing is said
    assert facts["host.hooked_modules"] in (None, 0) and facts["host.hooks_frac"] in (None, 0.0)


@pytest.mark.parametrize(
    ("kind", "replaced"),
    [("new", 3), ("kept", 0), ("stateless", 0), ("inner", 0), ("restored", 0), ("image", 0), ("clients", 0)],
)
def test_an_optimizer_that_replaces_the_one_before(kind: str, replaced: int) -> None:
    """Four rounds; only where the moments are lost for no reason is the new optimizer a replacement."""
    import torch

    remade, net, count = part("remade_optimizers"), torch.nn.Linear(4, 4), 0
    start = {name: value.clone() for name, value in net.state_dict().items()}
    outer = torch.optim.Adam(net.parameters())
    clients = [torch.optim.Adam(net.parameters()) for _ in range(4)]

    def step(optimizer: Any) -> None:
        nonlocal count
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = torch.ones_like(p)
        count += remade.before_step(optimizer)
        optimizer.step()
        remade.after_step(optimizer)

    def one_round(number: int) -> None:
        if kind == "new":
            step(torch.optim.Adam(net.parameters()))
        elif kind == "kept":
            step(outer)
        elif kind == "stateless":
            step(torch.optim.SGD(net.parameters(), lr=0.1))
        elif kind == "inner":  # of the outer one's class
            step(torch.optim.Adam(net.parameters()))
            net.load_state_dict(start)
            step(outer)
        elif kind == "restored":
            step(torch.optim.Adam(net.parameters()))
            net.load_state_dict(start)
        elif kind == "image":
            step(torch.optim.Adam([torch.zeros(3, requires_grad=True)]))
        else:
            step(clients[number])

    for number in range(4):
        one_round(number)
    assert count == replaced


def test_what_ddp_sends_in_every_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    net = torch.nn.Linear(10, 10)
    net.register_buffer("table", torch.zeros(50, 11))
    net.register_buffer("codebook", torch.zeros(300))
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    sharding = part("sharding_facts")
    monkeypatch.setattr(sharding, "_samples", {})
    monkeypatch.setattr(sharding, "_sampled_at", 0)
    monkeypatch.setattr(sharding, "_steps", 0)
    try:
        silent, sends = [
            torch.nn.parallel.DistributedDataParallel(net, broadcast_buffers=b) for b in (False, True)
        ]
        monkeypatch.setattr(sharding.models, "root", lambda: sends)
        early = sharding._broadcast([sends])
        sharding.step_ended()
        for _ in range(3):
            sends(torch.zeros(2, 10)).sum().backward()
            net.codebook[7] += 1.0
            net.table.mul_(1.0)  # written, and the same
            sharding.step_ended()
        found = [sharding._broadcast([wrapper]) for wrapper in (sends, silent)]
    finally:
        torch.distributed.destroy_process_group()
    assert early == {"gradient_bytes": 440}
    assert found[0] == {"broadcast_bytes": 2200, "changed_buffers": 1, "gradient_bytes": 440}
    assert found[1] == {"broadcast_bytes": 0, "changed_buffers": 0, "gradient_bytes": 440}


def test_batches_are_told_apart_by_their_values() -> None:
    import torch

    batches = part("batches")
    rows = torch.arange(16)
    same = [batches.digest(batch, torch) for batch in ({"ids": rows}, (rows.clone(), 1), rows.int())]
    assert len(set(same)) == 1 and len(same[0]) == 16
    assert batches.digest({"ids": rows + 1}, torch) not in same
    assert batches.digest({"ids": rows[:4]}, torch) == ""  # too few to tell
    # the first tensor, and the first values of a tensor, may be equal in different batches
    masked = [{"mask": torch.ones(4, 512), "ids": torch.arange(2048).view(4, 512) + n} for n in range(2)]
    images = [torch.ones(4, 3, 224, 224) for _ in range(2)]
    images[1][..., 40:-40, 40:-40] = torch.rand(4, 3, 144, 144)
    images[0][..., 40:-40, 40:-40] = torch.rand(4, 3, 144, 144)
    for one, other in (masked, images):
        assert "" != batches.digest(one, torch) != batches.digest(other, torch) != ""
    assert batches.digest({"mask": torch.ones(4, 512)}, torch) == ""
    assert batches.largest(masked[0], torch) == 2048


@pytest.mark.job
@pytest.mark.parametrize(
    ("words", "expected"),
    [("whole", True), pytest.param("part", None, marks=pytest.mark.full)],
)
def test_ranks_with_equal_batches(tmp_path: Path, words: str, expected: bool | None) -> None:
    """All of a batch on every rank, or of the same batch each rank's own part."""
    more = {"mode": "profile", "steps": 5, "warmup_steps": 3, "stop": "never"}
    job = run(tmp_path, "same_batches_loop.py", words, prefix=TORCHRUN, **more)
    assert job.exit_code == 0 and faults(job) == [], job.errors[-2000:] + "\n".join(faults(job))
    facts = derive_facts(job.observation, None).facts
    assert facts["comm.same_batches"].value is expected and facts["comm.kind"].value == "ddp"


def test_what_a_frame_gave_out_is_not_kept_alive() -> None:
    import sys
    import weakref

    class Thing:
        pass

    def function() -> Any:
        thing = Thing()
        seen = weakref.ref(thing)
        found = read(sys._getframe())["thing"] is thing
        del thing
        return found, seen()

    read = part("source").values
    assert function() == (True, None)


def test_the_dictionary_of_locals_a_job_holds_stays_what_it_is() -> None:
    import sys

    def asks(rate: float) -> Any:
        settings = locals()
        later = 1
        read(sys._getframe())
        return settings, later

    def is_asked(rate: float) -> Any:
        frame = sys._getframe()
        given = frame.f_back.f_locals if frame.f_back is None else look(frame)
        read(frame)
        return given

    def look(frame: Any) -> Any:
        return frame.f_locals

    read = part("source").values
    assert set(asks(0.5)[0]) == {"rate", "read", "sys"}
    assert is_asked(0.5)["rate"] == 0.5


@pytest.mark.parametrize(
    ("loops", "planned"),
    [
        ("for epoch in range(5):\n    for batch in data:\n        here()", 5),
        ("for epoch in bar(range(1, n)):\n    for batch in data:\n        here()", 6),
        ("while True:\n    for batch in data:\n        here()", None),
        ("for epoch in range(5):\n    for i in range(0, 9, 3):\n        here()", None),
        ("for epoch in range(3):\n    train()", 3),
    ],
)
def test_the_loop_around_the_batches(tmp_path: Path, loops: str, planned: int | None) -> None:
    import sys

    passes, found = part("passes"), []
    script = tmp_path / "job.py"
    script.write_text(f"def train():\n    for batch in data:\n        here()\n\n\n{loops}\n")

    class Over(Exception):
        pass

    def here() -> None:
        found.append(passes._planned(sys._getframe(1)))
        raise Over

    names = {"here": here, "data": [1], "bar": list, "n": 7}
    with pytest.raises(Over):
        exec(compile(script.read_text(), str(script), "exec"), names)
    assert found == [planned]


def test_a_look_at_values_runs_nothing_of_the_job() -> None:
    class Kind(type):
        def __eq__(cls, other: object) -> bool:  # and so no hash
            return cls is other

    class Odd(metaclass=Kind):
        pass

    asked = []

    class Lazy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            asked.append(1)
            return list

    kept = [Odd(), Lazy()]
    values = part("kept_values")
    assert not any(values._holds(value) for value in kept) and asked == []
    values._instances()
    assert asked == []


def test_objects_of_the_users_classes_are_looked_at_where_they_are_few() -> None:
    class Few:
        pass

    class Many:
        pass

    values = part("kept_values")
    few, many = [Few() for _ in range(values._MOST_INSTANCES)], [Many() for _ in range(60)]
    for number, thing in enumerate([*few, *many]):
        thing.number = number
    found = values._instances()
    assert {id(thing) for thing in few} <= {id(thing) for thing in found}
    assert not {id(thing) for thing in many} & {id(thing) for thing in found}
