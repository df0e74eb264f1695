"""Parity launches of a tiny training job: equal where the change is right, different where it is not."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from autotune.observe.launch import launch
from autotune.observe.spec import LaunchSpec
from autotune.records.parity import ParityRecord

pytestmark = pytest.mark.job
SCRIPTS = Path(__file__).parents[1] / "scripts"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


class Runs:
    """Launches of the loop, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, list[ParityRecord]] = {}

    def __call__(
        self, line: str = "", launcher: tuple[str, ...] = (), seed: int | None = 1
    ) -> list[ParityRecord]:
        key = f"{' '.join(launcher)} {line} {seed}"
        if key not in self.made:
            spec = LaunchSpec(
                command=(sys.executable, *launcher, "parity_loop.py", *line.split()), cwd=SCRIPTS,
                mode="parity", folder=self.folder / str(len(self.made)), steps=3, seed=seed,
                isolation=True, echo="none", total_timeout_s=200,
            )  # fmt: skip
            observation = launch(spec)
            assert observation.exit_code == 0, "\n".join(observation.log_tail)
            assert all(not rank.hook_faults for rank in observation.ranks), observation.ranks[0].hook_faults
            self.made[key] = [rank.parity for rank in observation.ranks if rank.parity is not None]
        return self.made[key]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("parity"))


def digests(record: ParityRecord) -> list[str | None]:
    return [step.examples_digest for step in record.steps]


def close(left: list[float], right: list[float], room: float = 1e-5) -> bool:
    return all(math.isclose(a, b, rel_tol=room, abs_tol=room) for a, b in zip(left, right, strict=True))


def weighted(record: ParityRecord) -> list[float]:
    """Loss per label of each step."""
    return [
        sum(loss * weight for loss, weight in zip(s.losses, s.loss_weights, strict=True))
        / sum(s.loss_weights)
        for s in record.steps
    ]


def test_padded_and_packed_are_the_same_training(runs: Runs) -> None:
    (padded,), (packed,) = runs(), runs("--layout packed")
    assert padded.initial_weights_digest == packed.initial_weights_digest is not None
    assert padded.final_weights_digest not in (None, padded.initial_weights_digest)
    assert digests(padded) == digests(packed) and None not in digests(padded)
    assert padded.seeded and padded.dropout_active is False
    assert [s.index for s in padded.steps] == [1, 2, 3]
    for one, other in zip(padded.steps, packed.steps, strict=True):
        assert one.examples == other.examples == 4
        assert one.supervised_tokens == other.supervised_tokens == sum(one.loss_weights)
        assert close(one.losses, other.losses) and close([one.grad_norm or 0], [other.grad_norm or 1])
        assert one.gradient_sketch.keys() == other.gradient_sketch.keys()
        for name, sketch in one.gradient_sketch.items():
            assert len(sketch) == 18 and close(sketch, other.gradient_sketch[name])
    norms = [values[0] ** 2 for values in padded.steps[0].gradient_sketch.values()]
    assert close([math.sqrt(sum(norms))], [padded.steps[0].grad_norm or 0])
    one, other = padded.steps[0].example_losses, packed.steps[0].example_losses
    assert one.keys() == other.keys() and len(one) == 4
    assert all(close(values, other[key]) for key, values in one.items())
    assert close([sum(v[0] for v in one.values()) / sum(v[1] for v in one.values())], padded.steps[0].losses)
    assert [i.examples for i in packed.isolation] == [4] and padded.isolation == []
    (record,) = packed.isolation
    assert record.before_change_frac == record.after_change_frac == record.repeat_change_frac == 0.0


@pytest.mark.parametrize("layout", ["mask", pytest.param("cache", marks=pytest.mark.full)])
def test_a_leaking_packing_is_seen_though_its_examples_are_right(runs: Runs, layout: str) -> None:
    (padded,), (leaking,) = runs(), runs(f"--layout {layout}")
    assert digests(padded) == digests(leaking)
    assert leaking.isolation[0].after_change_frac > 1e-2
    one, other = padded.steps[0].example_losses, leaking.steps[0].example_losses
    assert not all(close(values, other[key], 1e-3) for key, values in one.items())


@pytest.mark.full
def test_left_padding_and_micro_batches(runs: Runs) -> None:
    (padded,), (left,), (split,) = runs(), runs("--layout left"), runs("--micro 2")
    assert digests(padded) == digests(left) == digests(split)
    assert [len(step.losses) for step in split.steps] == [2, 2, 2]
    assert [sum(step.loss_weights) for step in split.steps] == [s.supervised_tokens for s in padded.steps]
    assert close(weighted(padded), weighted(left))
    assert padded.initial_weights_digest == split.initial_weights_digest


@pytest.mark.full
@pytest.mark.parametrize("micro", ["", " --micro 2"])
def test_a_loop_without_a_loader(runs: Runs, micro: str) -> None:
    """The end of a step is known late there; only the very first call of the model is missed."""
    (padded,), (by_hand,) = runs(), runs("--by-hand" + micro)
    assert digests(by_hand)[0] is None
    assert digests(by_hand)[1:] == digests(padded)[1:]
    assert [sum(s.loss_weights) for s in by_hand.steps[1:]] == [s.supervised_tokens for s in padded.steps[1:]]


@pytest.mark.full
def test_a_loss_outside_the_model(runs: Runs) -> None:
    """Labels that only the loss sees, shifted by the loop, under torch.compile."""
    (padded,), (shifted,) = runs(), runs("--loss shifted --wrap compile")
    assert [s.supervised_tokens for s in shifted.steps] == [s.supervised_tokens for s in padded.steps]
    assert close(shifted.steps[0].losses, padded.steps[0].losses)
    assert shifted.initial_weights_digest == padded.initial_weights_digest


def test_sharded_ranks_agree_with_one_process(runs: Runs) -> None:
    """FSDP2 on two ranks: weights, gradients and norms are those of the whole model."""
    (single,) = runs("--layout packed")
    ranks = runs("--layout packed --clip --wrap fsdp2 --by-hand", TORCHRUN)
    assert len(ranks) == 2
    assert {rank.initial_weights_digest for rank in ranks} == {single.initial_weights_digest}
    assert len({rank.final_weights_digest for rank in ranks}) == 1
    first, second = (rank.steps[0] for rank in ranks)
    assert first.gradient_sketch == second.gradient_sketch and first.grad_norm == second.grad_norm
    assert first.gradient_sketch.keys() == single.steps[0].gradient_sketch.keys()
    assert ranks[0].steps[1].examples_digest != ranks[1].steps[1].examples_digest
    assert all(rank.isolation and rank.isolation[0].after_change_frac == 0.0 for rank in ranks)


@pytest.mark.full
def test_replicated_ranks_and_dropout(runs: Runs) -> None:
    ranks = runs("--dropout 0.1 --wrap ddp", TORCHRUN)
    assert [rank.dropout_active for rank in ranks] == [True, True]
    assert ranks[0].steps[0].gradient_sketch == ranks[1].steps[0].gradient_sketch
    (single,) = runs()
    assert {rank.initial_weights_digest for rank in ranks} == {single.initial_weights_digest}


@pytest.mark.full
def test_without_a_seed_the_weights_differ(runs: Runs) -> None:
    (one,), (other,) = runs(seed=None), runs(seed=2)
    assert not one.seeded and one.initial_weights_digest != other.initial_weights_digest
