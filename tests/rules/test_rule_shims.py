"""The small modules that fixes of rules bring: what they compute is what was computed before."""

from __future__ import annotations

import copy
import types
from typing import Any

import pytest
from jinja2 import Environment

from autotune.data import data_dir

torch = pytest.importorskip("torch")


def shim(name: str) -> Any:
    text = Environment(autoescape=False).from_string(
        (data_dir("templates") / "shims" / f"{name}.py.j2").read_text()
    )
    module = types.ModuleType(f"autotune_{name}")
    exec(compile(text.render(), module.__name__, "exec"), module.__dict__)
    return module


def test_only_masks_of_ones_are_left_out() -> None:
    ids = torch.tensor([[5, 6], [7, 0]])

    def collate(rows: list[Any]) -> dict[str, Any]:
        return {"input_ids": ids, "attention_mask": rows[0], "labels": ids}

    wrapped = shim("plain_masks").without_full_masks(collate)
    assert list(wrapped([torch.ones(2, 2)])) == ["input_ids", "labels"]
    assert list(wrapped([torch.tensor([[1, 1], [1, 0]])])) == ["input_ids", "attention_mask", "labels"]
    assert wrapped.__name__ == "collate"
    assert shim("plain_masks").without_full_masks(None)([torch.tensor([1]), torch.tensor([2])]).tolist() == [
        [1],
        [2],
    ]


def test_autocast_computes_in_bf16_and_keeps_fp32_parameters() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    rows = torch.randn(4, 8)
    plain = model(rows)
    changed = shim("bf16_compute").autocast(model)
    assert changed is model
    out = model(rows)
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out.float(), plain, atol=0.05)
    assert not torch.equal(out.float(), plain)
    out.float().sum().backward()
    assert model.weight.dtype == model.weight.grad.dtype == torch.float32


class Slow:
    """A number that becomes known when `time` reaches its turn."""

    def __init__(self, module: Any, clock: dict[str, int], turn: int, value: float) -> None:
        def wait() -> None:
            clock["now"] = max(clock["now"], turn)
            clock["waits"] += 1

        self.number = module.Number(lambda: clock["now"] >= turn, wait, lambda: value)


def test_late_numbers_are_the_same_numbers_and_sums_do_not_wait() -> None:
    module = shim("late_reads")
    clock = {"now": 0, "waits": 0}
    values = [0.1, 0.2, 0.7, 1e16, -1e16, 3.3]
    total: Any = 0.0
    expected = 0.0
    for turn, value in enumerate(values, 1):
        total += Slow(module, clock, turn, value).number * 2
        expected += value * 2
    assert clock["waits"] == 0
    assert isinstance(total, module.Number)
    assert f"{total / 3:.17g}" == f"{expected / 3:.17g}"
    assert clock["waits"] == len(values)
    assert total == expected
    assert total > 0 - 1
    assert float(-total) == -expected
    clock["now"] = 99
    again = Slow(module, clock, 50, 2.5).number + 1
    assert (type(again), again) == (float, 3.5)  # known by then: no chain grows


def test_a_running_sum_over_many_steps_stays_short() -> None:
    module = shim("late_reads")
    clock = {"now": 0, "waits": 0}
    total: Any = 0.0
    for step in range(1, 20_001):
        total += Slow(module, clock, step, 0.25).number
        clock["now"] = step - 2  # the device is two steps behind
    assert float(total) == 5_000.0
    assert clock["waits"] <= 20_000 + 3


def test_late_reads_leave_host_tensors_alone() -> None:
    module = shim("late_reads")
    assert type(module.item(torch.tensor(2.5))) is float
    assert type(module.item(torch.tensor(2))) is int


def test_a_late_nan_is_noticed() -> None:
    import math

    module = shim("late_reads")
    number = Slow(module, {"now": 0, "waits": 0}, 1, float("nan")).number
    assert math.isnan(number)
    assert number != number


def padded(lengths: list[int], width: int) -> dict[str, Any]:
    """Right-padded ids, mask and labels of examples of these lengths."""
    torch.manual_seed(3)
    ids = torch.zeros(len(lengths), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(1, 50, (length,))
        mask[row, :length] = 1
        labels[row, :length] = ids[row, :length]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@pytest.fixture(scope="module")
def tiny_llama() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        attn_implementation="sdpa",
    )
    return transformers.LlamaForCausalLM(config)


def loss_and_gradient(model: Any, batch: dict[str, Any]) -> tuple[float, Any]:
    model.zero_grad()
    loss = model(**batch, use_cache=False).loss
    loss.backward()
    return loss.item(), model.model.embed_tokens.weight.grad.clone()


@pytest.mark.parametrize("name", ["trimmed_batches", "length_buckets"])
def test_other_lengths_of_a_batch_train_the_same(name: str, tiny_llama: Any) -> None:
    module = shim(name)
    wrap = module.trim if name == "trimmed_batches" else module.round_up
    batch = padded([3, 17, 9], 40)
    changed = wrap(lambda rows: batch)([])
    assert changed["input_ids"].shape[1] == (24 if name == "trimmed_batches" else 128)
    before, after = loss_and_gradient(tiny_llama, batch), loss_and_gradient(tiny_llama, changed)
    assert abs(before[0] - after[0]) < 1e-5
    assert torch.allclose(before[1], after[1], atol=1e-6)


def test_batches_whose_end_is_not_clear_are_not_cut() -> None:
    trim = shim("trimmed_batches").trim
    counted = padded([3, 5], 16)
    counted["labels"][0, 15] = 7  # the loss counts a padded place
    for batch in (counted, {"input_ids": torch.ones(2, 16)}, {"pixel_values": torch.ones(2, 3, 4, 4)}):
        assert trim(lambda rows, b=batch: b)([]) is not None
        assert all(torch.equal(v, batch[k]) for k, v in trim(lambda rows, b=batch: b)([]).items())
    left = padded([3, 5], 16)
    left = {name: value.flip(1) for name, value in left.items()}
    assert trim(lambda rows: left)([])["input_ids"].shape == (2, 16)


def test_a_tuple_of_ids_and_labels_is_cut_by_its_labels() -> None:
    batch = padded([3, 5], 32)
    ids, labels = shim("trimmed_batches").trim(lambda rows: (batch["input_ids"], batch["labels"]))([])
    assert ids.shape == labels.shape == (2, 8)


def test_rounding_up_needs_a_mask() -> None:
    batch = {name: value for name, value in padded([3, 5], 16).items() if name != "attention_mask"}
    assert shim("length_buckets").round_up(lambda rows: batch)([])["input_ids"].shape == (2, 16)


def test_garbage_is_collected_at_planned_steps_only() -> None:
    import gc

    module = shim("planned_collection")
    module.EVERY = 3
    module.start()
    handle = module.start.handle
    module.start()
    assert module.start.handle is handle
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    seen: list[str] = []
    watch = lambda phase, info: seen.append(phase)  # noqa: E731
    try:
        for step in range(1, 8):
            parameter.grad = torch.ones(2)
            optimizer.step()
            if step == 1:
                assert not gc.isenabled()
                gc.callbacks.append(watch)
        assert seen.count("start") == 2  # after steps 3 and 6
    finally:
        handle.remove()
        if watch in gc.callbacks:
            gc.callbacks.remove(watch)
        gc.unfreeze()
        gc.enable()


def test_layers_are_found_and_compiled_in_place(tiny_llama: Any) -> None:
    module = shim("compiled_layers")
    names = [name for name, _ in tiny_llama.named_parameters()]
    assert module.largest_list(tiny_llama) is tiny_llama.model.layers
    changed = module.compile_layers(copy.deepcopy(tiny_llama))
    assert all(layer._compiled_call_impl is not None for layer in changed.model.layers)
    assert changed._compiled_call_impl is None
    assert [name for name, _ in changed.named_parameters()] == names
    with pytest.raises(ValueError, match="no list of equal layers"):
        module.compile_layers(torch.nn.Linear(2, 2))


def tiny_hybrid() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3_5TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    return transformers.Qwen3_5ForCausalLM(config)


def test_the_parts_of_a_hybrid_model_are_compiled_and_its_mixers_are_not() -> None:
    module = shim("compiled_parts")
    model = tiny_hybrid()
    parts = {name for name, part in module.compile_parts(model).named_modules() if part._compiled_call_impl}
    assert {n.split(".", 3)[-1] for n in parts} == {
        "input_layernorm",
        "post_attention_layernorm",
        "mlp",
        "linear_attn.norm",
        "self_attn.q_norm",
        "self_attn.k_norm",
    }


@pytest.mark.full
def test_compiled_parts_compute_the_same_for_every_length_with_one_graph_each() -> None:
    from torch._dynamo.utils import counters

    module = shim("compiled_parts")
    model = tiny_hybrid()
    again = copy.deepcopy(model)
    module.compile_parts(again)
    again.gradient_checkpointing_enable({"use_reentrant": False})
    again.train()
    torch._dynamo.reset()
    counters.clear()
    for length in (12, 19, 33, 40, 27):
        ids = torch.randint(0, 64, (1, length))
        batch = {"input_ids": ids, "labels": ids}
        (loss, gradient), (loss_c, gradient_c) = (
            loss_and_gradient(model, batch),
            loss_and_gradient(again, batch),
        )
        assert loss_c == pytest.approx(loss, rel=1e-5)
        assert torch.allclose(gradient, gradient_c, atol=1e-5)
    assert sum(counters["graph_break"].values()) == 0
    assert counters["stats"]["unique_graphs"] <= 8, dict(counters["stats"])


def test_a_part_with_data_of_its_own_or_kernels_of_its_own_stays() -> None:
    class Experts(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2, 3, 3))

        def forward(self, x: Any) -> Any:
            return x @ self.weight[0]

    class Mixer(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.proj = torch.nn.Linear(3, 3)

        def forward(self, x: Any, mask: Any = None, cache: Any = None) -> Any:
            return self.proj(x)

    class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.experts, self.mixer, self.norm = Experts(), Mixer(), torch.nn.LayerNorm(3)

        def forward(self, x: Any, **kwargs: Any) -> Any:
            return self.norm(self.mixer(self.experts(x)))

    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([Layer(), Layer()])
    with pytest.raises(ValueError, match="no part of the layers of Module is plain enough"):
        shim("compiled_parts").compile_parts(model)


class DrawsAtOnce(torch.utils.data.Sampler):  # type: ignore[misc,name-defined]
    """Batches in an order that is drawn when an iterator is asked for."""

    def __init__(self, batches: list[list[int]]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Any:
        import random

        random.shuffle(self.batches)
        return iter(self.batches)


def orders(workers: int, wrap: Any) -> list[list[int]]:
    import random

    random.seed(4)
    rows = [[n, n + 1] for n in range(0, 40, 2)]
    loader = wrap(
        torch.utils.data.DataLoader(range(40), batch_sampler=DrawsAtOnce(rows), num_workers=workers)
    )
    assert isinstance(loader.batch_sampler, DrawsAtOnce)
    assert len(loader) == 20
    return [batch.tolist() for _ in range(2) for batch in loader]


def test_worker_processes_read_in_the_order_of_a_loader_without_them() -> None:
    start_once = shim("one_order").start_once
    alone = orders(0, lambda loader: loader)
    assert orders(0, start_once) == alone
    assert orders(2, start_once) == alone
    assert orders(2, lambda loader: loader) != alone  # what the wrapper is for


def test_loaders_whose_order_is_drawn_late_stay_as_they_are() -> None:
    loader = torch.utils.data.DataLoader(range(8), shuffle=True)
    before = type(loader.batch_sampler)
    assert shim("one_order").start_once(loader) is loader
    assert type(loader.batch_sampler) is before


def test_a_place_runs_once_in_so_many_times_whatever_others_do() -> None:
    due = shim("rarely").due
    ran: list[tuple[str, int]] = []
    for step in range(1, 7):
        if due(3):
            ran.append(("a", step))
        if step % 2 == 0 and due(2):
            ran.append(("b", step))
    assert ran == [("a", 3), ("b", 4), ("a", 6)]


def test_examples_are_read_once_and_given_as_they_were() -> None:
    class Texts(torch.utils.data.Dataset[Any]):
        reads = 0
        lengths = (1, 2, 3)

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, list[int]]:
            self.reads += 1
            return {"ids": [index] * self.lengths[index]}

    texts = Texts()
    kept = shim("kept_examples").keep(texts)
    before = texts.reads
    kept[2]["ids"].append(0)  # a collate function that pads in place
    assert [kept[i]["ids"] for i in range(len(kept))] == [[0], [1, 1], [2, 2, 2]]
    assert texts.reads == before and kept.lengths == (1, 2, 3)
    with pytest.raises(IndexError):
        kept[3]


def test_examples_that_differ_at_every_read_are_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    class Noisy(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> float:
            return float(torch.rand(()))

    noisy = Noisy()
    torch.manual_seed(3)
    assert shim("kept_examples").keep(noisy) is noisy
    assert "another one" in capsys.readouterr().err
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))  # nothing was drawn from the job's numbers
