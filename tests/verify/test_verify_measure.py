"""Figures per launch, the unit, the guards, and the ratio they lead to."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from verify_records import observation, timing_trial

from autotune.records.observation import DeviceSample
from autotune.records.verdict import MachineState, Trial
from autotune.verify import stats
from autotune.verify.figures import UnitChoice, choose_unit, trial_steps
from autotune.verify.guards import machine_state
from autotune.verify.measure import measure, speed_sentence

ARMS = ["baseline", "patched"]


def steps_ms(level: float, seed: int, count: int = 20, spread: float = 0.01) -> list[float]:
    rng = random.Random(seed)
    return [10 * level, *(level * (1 + spread * rng.gauss(0, 1)) for _ in range(count - 1))]


def session(ratio: float, blocks: int = 4, **changes: object) -> list[Trial]:
    return [
        timing_trial(arm, block, steps_ms(level, 10 * block + i), position=i, **changes)
        for block in range(1, blocks + 1)
        for i, (arm, level) in enumerate((("baseline", 100.0), ("patched", 100.0 / ratio)))
    ]


def test_the_slowest_rank_is_the_step() -> None:
    two = observation([500.0, 100.0, 100.0, 100.0], ranks=2)
    slow = two.ranks[1].model_copy(
        update={
            "steps": [s.model_copy(update={"duration_ms": 2 * s.duration_ms}) for s in two.ranks[1].steps]
        }
    )
    steps = trial_steps(two.model_copy(update={"ranks": [two.ranks[0], slow]}))
    assert steps[1].rank_ms == [100.0, 200.0] and steps[1].slowest_ms == 200.0


def test_equal_work_is_compared_by_step_time() -> None:
    found = measure(session(1.5), ARMS)
    lead = found.contrasts[0]
    assert lead.unit == "ms/step" and lead.outcome == "faster" and lead.pairs == 4
    assert lead.ratio == pytest.approx(1.5, rel=0.02)
    assert lead.interval is not None and lead.interval[0] > 1.45
    assert "1.50x as fast" in lead.sentence or "1.49x as fast" in lead.sentence


def test_no_change_is_not_faster() -> None:
    assert measure(session(1.0), ARMS).contrasts[0].outcome == "no-measurable-change"
    assert measure(session(1 / 1.4), ARMS).contrasts[0].outcome == "slower"


def test_changed_work_is_compared_in_useful_tokens() -> None:
    """Packing puts twice the tokens into a step of the same length: twice as fast, not unchanged."""
    trials = []
    for block in range(1, 4):
        for arm, real in (("baseline", 500), ("patched", 1000)):
            count = 20
            trials.append(
                timing_trial(
                    arm, block, steps_ms(100, block + real), real_tokens=[real] * count, tokens=[1000] * count
                )
            )
    found = measure(trials, ARMS)
    assert found.unit.unit == "useful tokens/s" and "real tokens" in found.unit.reason
    assert found.contrasts[0].ratio == pytest.approx(2.0, rel=0.03)


def test_changed_work_without_token_counts_compares_nothing() -> None:
    trials = [
        timing_trial(arm, block, steps_ms(100, block), examples=[examples] * 20)
        for block in range(1, 5)
        for arm, examples in (("baseline", 8), ("patched", 4))
    ]
    lead = measure(trials, ARMS).contrasts[0]
    assert lead.outcome == "undecided" and "not known" in lead.sentence


def test_bursts_are_timed_as_a_whole() -> None:
    """Four workers slower than the model: the median step shows no wait at all."""
    burst = [4000.0 if i % 4 == 0 else 100.0 for i in range(24)]
    smooth = steps_ms(120, 3, 24)
    trials = [
        timing_trial(arm, block, values)
        for block in (1, 2, 3)
        for arm, values in zip(ARMS, (burst, smooth), strict=True)
    ]
    found = measure(trials, ARMS)
    assert found.unit.unit == "steps/s"
    assert (found.contrasts[0].ratio or 0) > 7


def test_a_step_tagged_in_one_arm_counts_in_neither() -> None:
    """The second arm compiles in steps that are slow in the first for another reason."""
    slow = [1000.0] + [100.0] * 9 + [300.0] * 4 + [100.0] * 6
    tags = [["compile"] if 10 <= i < 14 else [] for i in range(20)]
    one = timing_trial("baseline", 1, slow, examples=[8] * 20)
    other = timing_trial("patched", 1, steps_ms(50, 1), tags=tags, examples=[8] * 20)
    figures = measure([one, other], ARMS).blocks[0].figures
    assert figures["baseline"].steps_used == figures["patched"].steps_used == 15
    assert figures["baseline"].value == 100.0


def test_a_stalled_launch_is_set_aside_and_said() -> None:
    trials = session(1.2)
    stalled = [
        t.model_copy(
            update={
                "steps": [s.model_copy(update={"rank_ms": [2 * ms for ms in s.rank_ms]}) for s in t.steps]
            }
        )
        if (t.arm, t.block) == ("baseline", 2)
        else t
        for t in trials
    ]
    found = measure(stalled, ARMS)
    assert [block.number for block in found.blocks if block.set_aside] == [2]
    assert found.contrasts[0].pairs == 3
    assert found.contrasts[0].ratio == pytest.approx(1.2, rel=0.03)
    assert any("baseline stalled" in note for note in found.notes)


def test_two_blocks_cannot_say_which_one_is_odd() -> None:
    trials = session(1.2, blocks=2)
    odd = [
        t.model_copy(
            update={"steps": [s.model_copy(update={"rank_ms": [3 * s.rank_ms[0]]}) for s in t.steps]}
        )
        if (t.arm, t.block) == ("baseline", 2)
        else t
        for t in trials
    ]
    assert not any(block.set_aside for block in measure(odd, ARMS).blocks)


def test_foreign_work_and_throttling_set_a_block_aside() -> None:
    trials = session(1.2)
    busy = MachineState(samples=50, foreign_processes=1)
    hot = MachineState(samples=50, throttle_reasons=["hw_thermal"], foreign_processes=0)
    capped = MachineState(samples=50, throttle_reasons=["sw_power_cap"])
    states = {("patched", 1): busy, ("baseline", 3): hot, ("patched", 4): capped}
    trials = [t.model_copy(update={"machine": states.get((t.arm, t.block or 0), t.machine)}) for t in trials]
    found = measure(trials, ARMS)
    assert [block.number for block in found.blocks if block.set_aside] == [1, 3]
    assert "another process" in (found.blocks[0].set_aside or "")
    assert "hw_thermal" in (found.blocks[2].set_aside or "")


def test_other_programs_on_the_cpu_set_a_block_aside_where_no_core_is_idle() -> None:
    def state(foreign: float, idle: float) -> MachineState:
        return MachineState(cpu_cores=2, cpu_foreign_cores=foreign, cpu_idle_frac=idle)

    states = {
        ("patched", 1): state(1.0, 0.02),  # crowded in one arm
        ("patched", 2): state(1.0, 0.4),  # a core was free
        ("baseline", 3): state(1.0, 0.02),  # the same in both arms
        ("patched", 3): state(0.9, 0.03),
    }
    trials = [
        t.model_copy(update={"machine": states.get((t.arm, t.block or 0), state(0.1, 0.3))})
        for t in session(1.2)
    ]
    found = measure(trials, ARMS)
    assert [block.number for block in found.blocks if block.set_aside] == [1, 3]
    assert "other programs used 1.0 of 2 cores while patched ran" in (found.blocks[0].set_aside or "")
    assert "used 0.9 of 2 cores while it ran, and hardly any in 2 others" in (found.blocks[2].set_aside or "")
    assert "the CPU was shared in 3 of 8 timed launches: other programs used 1.0 of 2" in found.notes[-1]


def test_a_load_that_lasts_is_said_and_counts() -> None:
    crowd = MachineState(cpu_cores=2, cpu_foreign_cores=1.0, cpu_idle_frac=0.02)
    quiet = MachineState(cpu_cores=2, cpu_foreign_cores=0.0, cpu_idle_frac=0.4)
    trials = [t.model_copy(update={"machine": quiet if t.block == 1 else crowd}) for t in session(1.2)]
    found = measure(trials, ARMS)
    assert not any(block.set_aside for block in found.blocks)
    assert "the CPU was shared in 6 of 8 timed launches" in found.notes[-1]


def test_bursts_of_other_work_leave_the_ratio_of_the_quiet_pairs() -> None:
    """Ten pairs of one job and its repair on two cores, while other programs ran now and then."""
    recorded = json.loads((Path(__file__).parent / "recorded" / "shared_cpu_pairs.json").read_text())
    trials = [
        timing_trial(
            row["arm"],
            row["block"],
            row["ms"],
            position=row["position"],
            tags=row["tags"],
            machine=MachineState(
                cpu_cores=2, cpu_foreign_cores=row["foreign_cores"], cpu_idle_frac=row["idle_frac"]
            ),
        )
        for row in recorded
    ]
    found = measure(trials, ["as it is", "attention/eager"])
    (contrast,) = found.contrasts
    assert contrast.outcome == "faster" and all(1.1 < ratio < 1.3 for ratio in contrast.pair_ratios)
    assert contrast.interval is not None and 1.05 < contrast.interval[0] < contrast.interval[1] < 1.3


def test_a_moved_clock_sets_a_block_aside() -> None:
    clocks = {1: 1980.0, 2: 1975.0, 3: 1500.0, 4: 1980.0}
    trials = [
        t.model_copy(update={"machine": MachineState(samples=9, sm_clock_mhz=clocks[t.block or 1])})
        for t in session(1.2)
    ]
    found = measure(trials, ARMS)
    assert [block.number for block in found.blocks if block.set_aside] == [3]


def test_clock_counts_under_load_only() -> None:
    idle = [DeviceSample(at_s=i, gpu=0, utilisation_frac=0.0, sm_clock_mhz=300) for i in range(5)]
    busy = [DeviceSample(at_s=i, gpu=0, utilisation_frac=0.9, sm_clock_mhz=1900) for i in range(5)]
    assert machine_state([*idle, *busy]).sm_clock_mhz == 1900
    assert machine_state([]).sm_clock_mhz is None


def test_drift_of_the_machine_is_said_and_kept_out_of_the_ratio() -> None:
    trials = []
    for block in range(1, 6):
        level = 100 * (1 + 0.05 * block)
        trials += [timing_trial("baseline", block, steps_ms(level, block))]
        trials += [timing_trial("patched", block, steps_ms(level / 1.3, 50 + block))]
    found = measure(trials, ARMS)
    assert found.contrasts[0].ratio == pytest.approx(1.3, rel=0.02)
    assert any("got slower" in note for note in found.notes)


def test_three_rungs_share_their_blocks() -> None:
    arms = ["user", "kernels", "packed"]
    trials = [
        timing_trial(arm, block, steps_ms(level, 7 * block + i), position=i)
        for block in range(1, 4)
        for i, (arm, level) in enumerate(zip(arms, (400.0, 200.0, 100.0), strict=True))
    ]
    contrasts = {(c.reference, c.candidate): c for c in measure(trials, arms).contrasts}
    assert list(contrasts) == [("user", "kernels"), ("user", "packed"), ("kernels", "packed")]
    assert contrasts["user", "packed"].ratio == pytest.approx(4.0, rel=0.03)
    assert contrasts["kernels", "packed"].ratio == pytest.approx(2.0, rel=0.03)


def test_an_incomplete_block_does_not_count() -> None:
    found = measure(session(1.5)[:-1], ARMS)
    assert found.contrasts[0].pairs == 3


def test_unit_is_chosen_over_all_launches() -> None:
    """A job that draws other batches at every launch still compares, in tokens."""
    rng = random.Random(1)
    trials = [
        timing_trial(arm, block, steps_ms(100, block), real_tokens=[rng.randint(400, 600) for _ in range(20)])
        for block in (1, 2)
        for arm in ARMS
    ]
    assert choose_unit(trials).unit == "useful tokens/s"


def test_random_batches_without_token_counts_compare_while_they_are_alike_on_average() -> None:
    def trials(patched_scale: int) -> list[Trial]:
        rng = random.Random(2)
        return [
            timing_trial(
                arm,
                block,
                steps_ms(100, block),
                tokens=[
                    rng.randint(400, 600) * (patched_scale if arm == "patched" else 1) for _ in range(40)
                ][:20],
            )
            for block in (1, 2, 3)
            for arm in ARMS
        ]

    assert choose_unit(trials(1)).unit == "steps/s" and choose_unit(trials(1)).comparable
    assert not choose_unit(trials(2)).comparable


def test_two_pairs_that_differ_print_their_interval_and_what_it_means() -> None:
    scattered = stats.interval([math.log(4.184), math.log(3.346)])
    assert scattered is not None
    sentence = speed_sentence("undecided", scattered, UnitChoice("useful tokens/s", ""))
    assert "98% interval 0.11 to over 100, 2 pairs" in sentence and "too few to rule out no gain" in sentence
    absurd = stats.Interval(ratio=1.4, low=0.001, high=842_266.0, pairs=2)
    assert "842" not in speed_sentence("undecided", absurd, UnitChoice("ms/step", ""))


def test_fewer_evaluations_are_a_gain_of_the_whole_not_of_the_median_step() -> None:
    """Every fifth step evaluates for as long as five steps; the change leaves the evaluations out."""
    trials = []
    for block in range(1, 4):
        for place, arm in enumerate(ARMS):
            trial = timing_trial(arm, block, steps_ms(100.0, 10 * block + place, count=18), position=place)
            if arm == "baseline":
                steps = [
                    s.model_copy(update={"tags": ["evaluation"], "rank_ms": [s.slowest_ms + 500.0]})
                    if i and i % 5 == 0
                    else s
                    for i, s in enumerate(trial.steps)
                ]
                trial = trial.model_copy(update={"steps": steps})
            trials.append(trial)
    lead = measure(trials, ARMS).contrasts[0]
    assert lead.outcome == "faster" and lead.ratio == pytest.approx(2.0, rel=0.03)
    assert "evaluation" in lead.unit_reason
    both = [t.model_copy(update={"steps": trials[0].steps}) for t in trials]
    assert measure(both, ARMS).contrasts[0].unit == "ms/step"  # as many in both: left out of both


def test_a_baseline_that_compiles_to_its_end_is_timed_with_it() -> None:
    """Eight of eleven steps compile for a second; with one shape for all, only the first two do."""
    trials = []
    for block in range(1, 4):
        for place, arm in enumerate(ARMS):
            trial = timing_trial(arm, block, steps_ms(100.0, 10 * block + place, count=11), position=place)
            compiled = range(1, 3) if place else [i for i in range(11) if i % 4]
            steps = [
                s.model_copy(update={"tags": ["compile"], "rank_ms": [1000.0 + i]}) if i in compiled else s
                for i, s in enumerate(trial.steps)
            ]
            trials.append(trial.model_copy(update={"steps": steps, "compiling": not place}))
    lead = measure(trials, ARMS).contrasts[0]
    assert lead.outcome == "faster" and lead.ratio is not None and 6.0 < lead.ratio < 9.0
    assert lead.unit == "steps/s" and "compile" in lead.unit_reason
    settled = [trial.model_copy(update={"compiling": False}) for trial in trials]
    assert measure(settled, ARMS).contrasts[0].outcome == "undecided"  # as any other without a steady state
