"""Work that serves nothing: loops in Python, copies, forwards nobody uses, rows without a gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import SCRIPTS, faults, run
from probe_parts import part

from autotune.facts.everything import derive_facts

_LINES = (SCRIPTS / "needless_loop.py").read_text().split("\n")


def _line(text: str) -> int:
    return 1 + next(number for number, line in enumerate(_LINES) if text in line)


def _facts(tmp_path: Path, style: str, steps: int = 24) -> tuple[Any, dict[str, Any]]:
    more = {"mode": "profile", "steps": steps, "warmup_steps": 6, "stop": "never"}
    job = run(tmp_path, "needless_loop.py", style, str(steps + 14), **more)
    assert job.exit_code == 0 and faults(job) == [], job.errors[-2000:]
    facts = derive_facts(job.observation, None).facts
    return job, {name: fact.value for name, fact in facts.items()}


@pytest.mark.job
def test_a_python_loop_is_found_with_its_function_and_line(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "loop")
    assert facts["host.loop_frac"] > 0.3 and facts["host.loop_function"] == "decay"
    site = job.site("host_loop")
    assert _line("for i in range(length)") < site.line <= _line("values[i] +=")
    assert not site.editable


@pytest.mark.job
def test_a_library_call_in_the_step_is_named(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "copy")
    assert facts["host.call_name"] == "copy.deepcopy" and facts["host.call_frac"] > 0.2
    assert job.site("host_call").line == _line("        for _copy in range(120)") + 1
    assert facts["host.loop_frac"] < 0.1  # the loop around the copies is no arithmetic of the user's


@pytest.mark.job
def test_a_forward_whose_graph_nothing_uses(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "again")
    assert facts["host.unused_forwards_per_step"] == 1.0 and facts["host.unused_forward_repeats"] is True
    assert 0.02 < facts["host.unused_forward_frac"] < 0.6
    assert job.site("unused_forward").line == _line("        right =")


@pytest.mark.job
def test_two_forwards_that_are_both_trained_on_are_used(tmp_path: Path) -> None:
    _, facts = _facts(tmp_path, "dropout")
    assert facts["host.unused_forwards_per_step"] == 0.0 and facts["host.unused_forward_frac"] == 0.0


@pytest.mark.job
def test_generation_without_a_cache(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "generate")
    assert facts["host.uncached_forwards_per_step"] >= 39.0 and 0.2 < facts["host.uncached_frac"] < 1.0
    assert job.site("uncached_forward").line == _line("ids = torch.cat")


@pytest.mark.job
def test_gradients_of_a_reference_model(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "reference")
    assert facts["model.unused_gradients_beside"] is True
    assert facts["model.unused_gradient_modules"] == ["Net"]
    assert 0.4 < facts["model.unused_gradient_frac"] <= 0.5 and facts["model.needless_backward_frac"] > 0.2
    assert job.site("foreign_forward").line == _line("functional.mse_loss(other(")


@pytest.mark.job
@pytest.mark.full
def test_a_teacher_without_gradients_is_in_order(tmp_path: Path) -> None:
    _, facts = _facts(tmp_path, "teacher")
    assert facts["model.unused_gradient_frac"] == 0.0 and facts["model.unused_gradients_beside"] is False
    assert facts["host.unused_forward_frac"] == 0.0 and facts["host.uncached_frac"] == 0.0


@pytest.mark.job
def test_rows_of_a_table_that_got_no_gradient(tmp_path: Path) -> None:
    _, facts = _facts(tmp_path, "rows")
    assert facts["optimizer.idle_values_frac"] > 0.95


@pytest.mark.job
def test_a_module_called_for_one_position_at_a_time(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "positions")
    assert facts["host.repeated_module"] == "Sequential" and facts["host.repeated_calls"] == 47.0
    assert facts["host.repeated_frac"] > 0.1 and facts["host.repeated_cell"] is False
    assert job.site("repeated_call").line == _line("return torch.stack")


@pytest.mark.job
def test_workers_that_start_for_every_batch(tmp_path: Path) -> None:
    job, facts = _facts(tmp_path, "iterator")
    assert facts["data.worker_starts_per_step"] == 1.0
    assert job.site("loader_iterator").line == _line("next(iter(")


def test_a_loop_that_trains_is_not_a_python_loop(tmp_path: Path) -> None:
    loops = part("loops")
    script = tmp_path / "job.py"
    script.write_text(
        "def run(net, data, step):\n"
        "    for batch in data:\n"
        "        total = 0\n"
        "        for value in batch:\n"
        "            total += value\n"
        "        step(net, total)\n"
        "    return [x for x in data]\n"
    )
    space: dict[str, Any] = {}
    exec(compile(script.read_text(), str(script), "exec"), space)
    code = space["run"].__code__
    assert loops.inside(code, 6) and not loops.inside(code, 6, step_ends=6)
    assert loops.inside(code, 5, step_ends=6) and loops.inside(code, 7)
    assert not loops.inside(code, 1)


def _penalised(kind: str) -> int:
    """Values that count as penalised in one loss of a small model; its two weights hold 72 and 24."""
    import torch
    from torch.nn import functional

    first = torch.nn.Parameter(torch.randn(8, 1, 3, 3))
    last = torch.nn.Parameter(torch.randn(8, 3))
    own = [first, last]
    x, w, v = torch.randn(2, 1, 9, 9), first, last
    if kind == "standardized":
        w = w - w.mean((1, 2, 3), keepdim=True)
        w = w / w.std((1, 2, 3), keepdim=True)
    if kind == "normed":
        w, v = w * (2.0 / w.norm()), v / v.pow(2).sum(0, keepdim=True).sqrt()
    if kind == "elementwise":
        x = x * first.mean()
    logits = functional.conv2d(x, w).mean((2, 3)) @ v
    loss = functional.cross_entropy(logits, torch.tensor([0, 1]))
    if kind == "norms":
        loss = loss + 1e-4 * sum(p.norm() ** 2 for p in own)
    if kind == "squares":
        loss = loss + 1e-4 * sum((p * p).sum() for p in own)
    if kind == "stacked":
        loss = loss + 1e-4 * torch.stack([p.norm() for p in own]).norm()
    if kind == "flat":
        loss = loss + 1e-4 * torch.cat([p.flatten() for p in own]).abs().sum()
    if kind == "foreach":
        loss = loss + 1e-4 * sum(torch._foreach_norm(own))
    if kind == "last":
        loss = loss + 1e-4 * last.pow(2).sum()
    if kind == "regression":
        loss = loss + (last * torch.ones(8, 3)).pow(2).mean()
    nodes, stack = set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            stack += [child for child, _ in node.next_functions]
    return sum(leaf.numel() for leaf in part("penalties").find([loss.grad_fn], nodes))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        *[(kind, 96) for kind in ("norms", "squares", "stacked", "flat", "foreach")],
        ("last", 24),
        *[(kind, 0) for kind in ("standardized", "normed", "elementwise", "regression", "none")],
    ],
)
def test_a_penalty_in_the_loss_is_no_norm_inside_the_model(kind: str, values: int) -> None:
    assert _penalised(kind) == values
