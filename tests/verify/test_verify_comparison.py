"""The order of launches, what is skipped, what is resumed, and the failures, on replayed observations."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from verify_records import LOSSES, observation, parity_steps

from autotune.errors import Exit, JobFailedError, NotObservedError
from autotune.observe.spec import LaunchSpec
from autotune.records.observation import LayerKernel, MemoryRecord, ModelRecord, Observation
from autotune.records.parity import ParityRecord
from autotune.records.verdict import Trial, Verdict
from autotune.store import read_record
from autotune.verify.arm import Arm, LiveFindings, VerifyOptions
from autotune.verify.estimate import estimate_minutes, timed_steps
from autotune.verify.kernels import slow_kernels
from autotune.verify.starts import Finished
from autotune.verify.trial import run_comparison
from autotune.verify.verdict import recompute

MODEL = ModelRecord(class_name="Qwen3_5ForCausalLM", transformers=True, parameters=1, trainable_parameters=1)
Change = Callable[[LaunchSpec, Observation], Observation]


def keep(spec: LaunchSpec, seen: Observation) -> Observation:
    return seen


class Replay:
    """Answers launches: steps of `ms[program]`, parity as `losses[program]`, then `change`."""

    def __init__(
        self, ms: dict[str, float], losses: dict[str, list[float]] | None = None, change: Change = keep
    ) -> None:
        self.ms, self.losses, self.change = ms, losses or {}, change
        self.specs: list[LaunchSpec] = []
        self.rng = random.Random(5)

    def __call__(self, spec: LaunchSpec) -> Observation:
        self.specs.append(spec)
        spec.folder.mkdir(parents=True)
        program = spec.command[1]
        level = self.ms[program] * (1 + 0.003 * self.rng.gauss(0, 1))
        times = [20 * level, *(level * (1 + 0.01 * self.rng.gauss(0, 1)) for _ in range(spec.steps - 1))]
        seen = observation(times, wall_s=12.0)
        if spec.mode == "parity":
            record = ParityRecord(
                initial_weights_digest="w0",
                final_weights_digest="w1",
                seeded=spec.seed is not None,
                dropout_active=False,
                steps=parity_steps(self.losses.get(program, LOSSES)),
            )
            rank = seen.ranks[0].model_copy(update={"parity": record})
            seen = seen.model_copy(update={"ranks": [rank]})
        return self.change(spec, seen)

    @property
    def made(self) -> list[str]:
        return [f"{spec.mode}:{spec.command[1]}" for spec in self.specs]


def arms(**patched: object) -> list[Arm]:
    base = Arm(name="baseline", command=("python", "slow.py"), cwd=Path("/"))
    return [base, Arm(name="patched", command=("python", "fast.py"), cwd=Path("/"), **patched)]  # type: ignore[arg-type]


def on_rank(seen: Observation, **changes: object) -> Observation:
    return seen.model_copy(update={"ranks": [seen.ranks[0].model_copy(update=changes)]})


def test_a_large_gain_takes_parity_and_two_pairs(tmp_path: Path) -> None:
    replay = Replay({"slow.py": 100, "fast.py": 40})
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(tier="numeric"), launch=replay)
    assert replay.made[:2] == ["parity:slow.py", "parity:fast.py"]  # equal to the last bit
    timed = replay.made[2:]
    assert timed[:4] == ["timing:slow.py", "timing:fast.py", "timing:fast.py", "timing:slow.py"]
    assert verdict.outcome == "faster" and verdict.accepted
    assert verdict.ratio == pytest.approx(2.5, rel=0.03)
    assert "2.5" in verdict.sentence and "losses identical" in verdict.sentence
    assert all(spec.seed == 0 for spec in replay.specs)


def test_the_verdict_recomputes_from_its_file(tmp_path: Path) -> None:
    run_comparison(
        arms(), folder=tmp_path, options=VerifyOptions(), launch=Replay({"slow.py": 100, "fast.py": 80})
    )
    stored = read_record(tmp_path / "verdict.json", Verdict)
    assert recompute(stored) == stored
    step = stored.trials[-1].steps[8]
    forged = [s.model_copy(update={"rank_ms": [1.0]}) for s in stored.trials[-1].steps]
    trials = [*stored.trials[:-1], stored.trials[-1].model_copy(update={"steps": forged})]
    assert step.rank_ms != [1.0]
    assert recompute(stored.model_copy(update={"trials": trials})) != stored


def test_finished_launches_are_not_repeated(tmp_path: Path) -> None:
    options = VerifyOptions(min_pairs=3, max_pairs=4)
    replay = Replay({"slow.py": 100, "fast.py": 95})

    class Killed(Exception):
        pass

    def dies(spec: LaunchSpec) -> Observation:
        if len(replay.specs) == 6:
            spec.folder.mkdir(parents=True)
            (spec.folder / "half-written").write_text("x")
            raise Killed
        return replay(spec)

    with pytest.raises(Killed):
        run_comparison(arms(), folder=tmp_path, options=options, launch=dies)
    before = len(replay.specs)
    verdict = run_comparison(arms(), folder=tmp_path, options=options, launch=replay)
    folders = [spec.folder.name for spec in replay.specs]
    assert len(set(folders)) == len(folders)
    assert len(replay.specs) - before == len(verdict.trials) - before
    again = run_comparison(arms(), folder=tmp_path, options=options, launch=dies)
    assert again.outcome == verdict.outcome and again.ratio == verdict.ratio


def test_another_command_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    options = VerifyOptions(tier=None, max_pairs=3)
    replay = Replay({"slow.py": 100, "fast.py": 50})
    run_comparison(arms(warmed=True), folder=tmp_path, options=options, launch=replay)
    before = len(replay.specs)
    other = arms(warmed=True, env={"X": "1"})
    run_comparison(other, folder=tmp_path, options=options, launch=replay)
    new = replay.specs[before:]
    assert new and all(spec.command[1] == "fast.py" for spec in new)


def test_kernels_that_are_installed_and_not_taken_end_it_at_the_first_launch(tmp_path: Path) -> None:
    wrong = [loss * 0.9 for loss in LOSSES]
    replay = Replay({"slow.py": 100, "fast.py": 40}, {"fast.py": wrong})

    def resolved(fast: bool) -> Change:
        kernel = LayerKernel(
            name="chunk_gated_delta_rule",
            role="linear_attention",
            implementation="fla.ops.gated_delta_rule" if fast else "transformers.models.qwen3_5",
            fast=fast,
            package="flash-linear-attention",
            package_version="0.6.0",
            reason=None if fast else "version",
        )
        return lambda spec, seen: on_rank(seen, model=MODEL.model_copy(update={"kernels": [kernel]}))

    patched = arms(fused_roles=("linear_attention",))
    replay.change = resolved(False)
    verdict = run_comparison(patched, folder=tmp_path / "a", options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "patch-not-live" and replay.made == ["parity:slow.py", "parity:fast.py"]
    assert "chunk_gated_delta_rule still runs transformers.models.qwen3_5" in verdict.sentence
    assert "flash-linear-attention 0.6.0 is there and not taken" in verdict.sentence
    replay.change = resolved(True)
    verdict = run_comparison(patched, folder=tmp_path / "b", options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "parity-broken"


def test_one_rank_with_slow_kernels_is_enough_and_none_that_tells_is_no_fault() -> None:
    def kernel(fast: bool, role: str = "causal_conv") -> LayerKernel:
        words = {"name": "conv1d", "implementation": "torch.nn", "package": "", "reason": "absent"}
        return LayerKernel.model_validate({**words, "role": role, "fast": fast})

    def ranks(*kernels: LayerKernel | None) -> Observation:
        seen = observation([100.0])
        made = [
            seen.ranks[0].model_copy(
                update={"model": k and MODEL.model_copy(update={"kernels": [k]}), "rank": n}
            )
            for n, k in enumerate(kernels)
        ]
        return seen.model_copy(update={"ranks": made})

    slow = ["conv1d still runs torch.nn: its package is not found"]
    for told in ([kernel(True), kernel(False)], [None, kernel(False), kernel(False)]):
        assert slow_kernels(ranks(*told), ["causal_conv"]) == slow
    for told in ([], [None], [kernel(True)], [kernel(False, "other")]):
        assert slow_kernels(ranks(*told), ["causal_conv"]) == []
    assert slow_kernels(ranks(kernel(False)), []) == []


def test_broken_parity_ends_before_any_timing(tmp_path: Path) -> None:
    wrong = [loss * 0.9 for loss in LOSSES]
    replay = Replay({"slow.py": 100, "fast.py": 40}, {"fast.py": wrong})
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "parity-broken" and not verdict.accepted
    assert len(replay.specs) == 3 and "lower" in verdict.sentence
    timed = VerifyOptions(speed_when_broken=True)
    verdict = run_comparison(arms(), folder=tmp_path, options=timed, launch=replay)
    assert verdict.outcome == "parity-broken" and (verdict.ratio or 0) > 2


def test_undecided_parity_is_never_faster(tmp_path: Path) -> None:
    def dropout(spec: LaunchSpec, seen: Observation) -> Observation:
        if spec.mode != "parity":
            return seen
        record = seen.ranks[0].parity
        assert record is not None
        steps = [
            s.model_copy(update={"losses": [s.losses[0] + 0.3 * len(spec.folder.name)]}) for s in record.steps
        ]
        return on_rank(seen, parity=record.model_copy(update={"dropout_active": True, "steps": steps}))

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=dropout)
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "undecided" and "dropout" in verdict.sentence
    assert verdict.contrasts[0].outcome == "faster"


def test_a_baseline_without_steps_stops_everything(tmp_path: Path) -> None:
    def crash(spec: LaunchSpec, seen: Observation) -> Observation:
        rank = {"steps": [], "status": "exception", "error": "ValueError: no such column"}
        return on_rank(seen, **rank).model_copy(
            update={"exit_code": 1, "log_tail": ["Traceback", "ValueError"]}
        )

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=crash)
    with pytest.raises(JobFailedError, match="no such column") as caught:
        run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert caught.value.exit_code == Exit.JOB_FAILED and len(replay.specs) == 1


def test_a_baseline_that_never_trains_is_not_observed(tmp_path: Path) -> None:
    replay = Replay({"slow.py": 1, "fast.py": 1}, change=lambda spec, seen: on_rank(seen, steps=[]))
    with pytest.raises(NotObservedError):
        run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)


def candidate_only(change: Change) -> Change:
    return lambda spec, seen: change(spec, seen) if spec.command[1] == "fast.py" else seen


def crashed(spec: LaunchSpec, seen: Observation) -> Observation:
    few = on_rank(seen, steps=seen.ranks[0].steps[:2], status="exception", error="RuntimeError: bad kernel")
    return few.model_copy(update={"exit_code": 1})


def late(spec: LaunchSpec, seen: Observation) -> Observation:
    few = on_rank(seen, steps=[], status="killed")
    reason = "no training step ended within 900 s; last seen: compiling"
    return few.model_copy(update={"exit_code": None, "stop_reason": reason})


def restless(spec: LaunchSpec, seen: Observation) -> Observation:
    if spec.mode != "timing":
        return seen
    steps = [s.model_copy(update={"duration_ms": 5000 * 0.8**i}) for i, s in enumerate(seen.ranks[0].steps)]
    return on_rank(seen, steps=steps)


def out_of_memory(spec: LaunchSpec, seen: Observation) -> Observation:
    memory = MemoryRecord(device_bytes=2**30, out_of_memory=True)
    return crashed(spec, on_rank(seen, memory=memory))


@pytest.mark.parametrize(
    ("change", "outcome", "words"),
    [
        (crashed, "candidate-crashed", "bad kernel"),
        (out_of_memory, "candidate-crashed", "out of memory"),
        (late, "not-finished", "no training step"),
        (restless, "no-steady-state", "getting shorter"),
    ],
)
def test_failures_of_the_candidate_are_different_outcomes(
    tmp_path: Path, change: Change, outcome: str, words: str
) -> None:
    replay = Replay({"slow.py": 100, "fast.py": 40}, change=candidate_only(change))
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == outcome and words in verdict.sentence
    assert verdict.failed_arm == "patched" and verdict.ratio is None
    assert recompute(verdict) == verdict


def test_a_lost_rank_is_a_crash_of_the_candidate(tmp_path: Path) -> None:
    def two(spec: LaunchSpec, seen: Observation) -> Observation:
        other = seen.ranks[0].model_copy(update={"rank": 1})
        if spec.command[1] == "fast.py":
            other = other.model_copy(update={"steps": []})
        return seen.model_copy(update={"ranks": [seen.ranks[0], other], "expected_ranks": 2})

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=two)
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(tier=None), launch=replay)
    assert verdict.outcome == "candidate-crashed" and "only 1 of 2 ranks" in verdict.sentence


def test_a_launch_that_did_not_settle_is_tried_once_more(tmp_path: Path) -> None:
    tried: list[str] = []

    def once(spec: LaunchSpec, seen: Observation) -> Observation:
        if spec.mode == "timing" and not tried:
            tried.append(spec.folder.name)
            return restless(spec, seen)
        return seen

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=candidate_only(once))
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "faster"
    assert [t.outcome for t in verdict.trials].count("no-steady-state") == 1


def test_a_block_that_does_not_settle_is_left_out_where_others_do(tmp_path: Path) -> None:
    def in_second(spec: LaunchSpec, seen: Observation) -> Observation:
        is_second = spec.mode == "timing" and spec.folder.name.startswith("timing-02")
        return restless(spec, seen) if is_second else seen

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=candidate_only(in_second))
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "faster" and verdict.failure is None
    assert [b.number for b in verdict.blocks] == [1, 3]
    assert [t.outcome for t in verdict.trials].count("no-steady-state") == 2
    assert any(n.startswith("block 2 left out: patched did not settle") for n in verdict.notes)
    assert recompute(verdict) == verdict


def test_an_arm_that_seldom_settles_has_no_steady_state(tmp_path: Path) -> None:
    def in_most(spec: LaunchSpec, seen: Observation) -> Observation:
        settles = spec.mode != "timing" or spec.folder.name.startswith("timing-01")
        return seen if settles else restless(spec, seen)

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=candidate_only(in_most))
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "no-steady-state" and verdict.ratio is None
    assert recompute(verdict) == verdict


def test_a_launch_with_too_few_steps_to_time_is_started_again_with_more(tmp_path: Path) -> None:
    def saving(spec: LaunchSpec, seen: Observation) -> Observation:
        if spec.mode != "timing":
            return seen
        steps = seen.ranks[0].steps
        late = [s.model_copy(update={"tags": ["compile"] if i < 5 else []}) for i, s in enumerate(steps)]
        return on_rank(seen, steps=late)

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=candidate_only(saving))
    options = VerifyOptions(steps=8)
    verdict = run_comparison(arms(), folder=tmp_path, options=options, launch=replay)
    assert verdict.outcome == "faster"
    timed = [s for s in replay.specs if s.mode == "timing" and s.command[1] == "fast.py"]
    assert [spec.steps for spec in timed[:2]] == [8, 16]


@pytest.mark.parametrize(("reported", "words"), [(None, "did not load"), ("other", "ran other files")])
def test_the_patch_must_be_live_on_every_rank(tmp_path: Path, reported: str | None, words: str) -> None:
    def report(spec: LaunchSpec, seen: Observation) -> Observation:
        return on_rank(seen, patch_fingerprint=reported)

    patched = arms(fingerprint="abc", fingerprint_files=(Path("/x.py"),))
    replay = Replay({"slow.py": 100, "fast.py": 40}, change=candidate_only(report))
    verdict = run_comparison(patched, folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "patch-not-live" and words in verdict.sentence


def test_a_fresh_profile_must_show_the_change(tmp_path: Path) -> None:
    def report(spec: LaunchSpec, seen: Observation) -> Observation:
        return on_rank(seen, patch_fingerprint="abc")

    def check(seen: Observation, folder: Path) -> LiveFindings:
        assert folder.is_dir() and seen.ranks
        return LiveFindings(faults=("chunk_gated_delta_rule is still the reference implementation",))

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=candidate_only(report))
    patched = arms(fingerprint="abc", live_check=check)
    verdict = run_comparison(patched, folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "patch-not-live" and "still the reference" in verdict.sentence
    assert replay.made[-1] == "profile:fast.py"


def test_minutes_end_the_growth(tmp_path: Path) -> None:
    replay = Replay({"slow.py": 100, "fast.py": 99})
    options = VerifyOptions(tier=None, max_minutes=1.0)
    verdict = run_comparison(arms(), folder=tmp_path, options=options, launch=replay)
    assert verdict.minutes_spent <= 1.2
    assert any("another takes about" in note for note in verdict.notes)


def test_caches_are_warmed_where_parity_did_not(tmp_path: Path) -> None:
    replay = Replay({"slow.py": 100, "fast.py": 40})
    run_comparison(arms(), folder=tmp_path, options=VerifyOptions(tier=None), launch=replay)
    assert [s.folder.name.split("-")[0] for s in replay.specs[:3]] == ["warm", "warm", "timing"]

    def compiles(spec: LaunchSpec, seen: Observation) -> Observation:
        steps = [
            s.model_copy(update={"tags": ["compile"] if s.index < 3 else s.tags}) for s in seen.ranks[0].steps
        ]
        return on_rank(seen, steps=steps)

    # A cold candidate only looks slower, a cold baseline would make it look faster.
    for change, warm in ((candidate_only(compiles), 0), (compiles, 1)):
        replay = Replay({"slow.py": 100, "fast.py": 40}, change=change)
        run_comparison(arms(), folder=tmp_path / f"warm-{warm}", options=VerifyOptions(), launch=replay)
        assert [s.command[1] for s in replay.specs if s.folder.name.startswith("warm")] == ["slow.py"] * warm


def test_who_passes_without_allowance_needs_no_measure_of_noise(tmp_path: Path) -> None:
    near = [loss * (1 + 2e-6 * (-1) ** i) for i, loss in enumerate(LOSSES)]  # rounding in float32
    replay = Replay({"slow.py": 100, "fast.py": 40}, {"fast.py": near})
    verdict = run_comparison(arms(), folder=tmp_path / "near", options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "faster" and "within rounding" in verdict.parity.sentence
    assert replay.made.count("parity:slow.py") == 1
    assert recompute(verdict) == verdict
    replay = Replay({"slow.py": 100, "fast.py": 40}, {"fast.py": [loss * 1.001 for loss in LOSSES]})
    verdict = run_comparison(arms(), folder=tmp_path / "off", options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "parity-broken" and replay.made.count("parity:slow.py") == 2


def test_self_check_gives_the_noise_floor(tmp_path: Path) -> None:
    same = [
        Arm(name="a", command=("python", "slow.py"), cwd=Path("/")),
        Arm(name="again", command=("python", "slow.py"), cwd=Path("/")),
    ]
    options = VerifyOptions(tier="bitwise", self_check=True)
    verdict = run_comparison(same, folder=tmp_path, options=options, launch=Replay({"slow.py": 100}))
    assert verdict.outcome in ("no-measurable-change", "undecided")
    assert verdict.noise_floor_frac is not None and 0 < verdict.noise_floor_frac < 0.05


def test_estimate_is_told_before_it_is_spent() -> None:
    seen = observation([5000.0] + [100.0] * 19, wall_s=12.0)
    plan = estimate_minutes(seen, VerifyOptions(), ratio=2.0)
    assert plan is not None
    assert (plan.launches_least, plan.launches_most) == (2 + 4, 3 + 16)
    assert 1.2 < plan.minutes_least < 2.0 < plan.minutes_most < 5.0
    small = estimate_minutes(seen, VerifyOptions(), ratio=1.1)
    assert small is not None and small.launches_least == 2 + 6
    assert estimate_minutes(observation([]), VerifyOptions()) is None
    slow = observation([60_000.0] + [10_000.0] * 9, wall_s=170.0)
    whole = estimate_minutes(slow, VerifyOptions(tier=None))
    short = estimate_minutes(slow, VerifyOptions(tier=None, timing_budget_s=60))
    assert whole is not None and short is not None and short.minutes_least < 0.7 * whole.minutes_least


def test_what_the_first_steps_took_on_top_comes_in_a_short_launch_only_as_far_as_it_goes() -> None:
    """A job that compiles in its first eight steps; eighteen steps were watched."""
    seen = observation([2000.0] * 8 + [100.0] * 10, wall_s=25.0)  # eight seconds to start
    options = VerifyOptions(tier=None, min_pairs=2, max_pairs=2, steps=8, warmup_steps=3)
    timed = estimate_minutes(seen, options)
    assert timed is not None  # four timed starts and two that fill the caches, a second between them
    assert timed.minutes_most == pytest.approx(6 * (8 + 8 * 2.0 + 3 * 0.1 + 1) / 60, abs=0.02)
    compared = estimate_minutes(seen, VerifyOptions(tier="bitwise", max_pairs=0, parity_steps=5))
    assert compared is not None
    assert compared.minutes_least == pytest.approx(2 * (8 + 6 * 2.0 + 1) / 60, abs=0.02)


def test_short_steps_are_timed_longer() -> None:
    options = VerifyOptions(steps=8, timing_least_s=6.0)
    assert [timed_steps(options, step_s) for step_s in (0.01, 0.1, 0.5, 1.0, 30.0)] == [128, 60, 12, 8, 8]
    brief = observation([100.0] * 20, wall_s=12.0)
    longer = estimate_minutes(brief, replace(options, tier=None))
    shorter = estimate_minutes(brief, replace(options, tier=None, timing_least_s=None))
    assert longer is not None and shorter is not None
    starts = longer.launches_least
    assert longer.minutes_least - shorter.minutes_least == pytest.approx(starts * 52 * 0.1 / 60, abs=0.02)


def test_a_change_that_spends_memory_is_tried_on_the_longest_examples(tmp_path: Path) -> None:
    def on_device(fails: bool, tells: bool) -> Change:
        def change(spec: LaunchSpec, seen: Observation) -> Observation:
            peak = (60 if spec.command[1] == "fast.py" else 20) * 2**30
            memory = MemoryRecord(device_bytes=80 * 2**30, peak_allocated_bytes=peak)
            counters = {"longest_first.tokens": 4096.0} if spec.longest_first and tells else {}
            seen = on_rank(seen, memory=memory, counters=counters)
            return (
                out_of_memory(spec, on_rank(seen, counters=counters))
                if spec.longest_first and fails
                else seen
            )

        return change

    def verdict(name: str, *, fails: bool, tells: bool = True) -> Verdict:
        replay = Replay({"slow.py": 100, "fast.py": 40}, change=on_device(fails, tells))
        return run_comparison(arms(), folder=tmp_path / name, options=VerifyOptions(), launch=replay)

    failed = verdict("fails", fails=True)
    assert failed.outcome == "out-of-memory-risk" and "4096 tokens" in failed.sentence
    assert not failed.accepted and recompute(failed) == failed
    fits = verdict("fits", fails=False)
    assert fits.outcome == "faster" and fits.trials[-1].purpose == "longest"
    unknown = verdict("unknown", fails=False, tells=False)
    assert any("could not be put first" in note for note in unknown.notes)
    plain = run_comparison(
        arms(),
        folder=tmp_path / "plain",
        options=VerifyOptions(),
        launch=Replay({"slow.py": 100, "fast.py": 40}),
    )
    assert all(trial.purpose != "longest" for trial in plain.trials)


def test_a_crash_is_believed_when_it_happens_twice(tmp_path: Path) -> None:
    """One start in three fails for reasons of its own."""
    replay = Replay({"slow.py": 100, "fast.py": 40})

    def flaky(spec: LaunchSpec, seen: Observation) -> Observation:
        return crashed(spec, seen) if len(replay.specs) % 3 == 0 else seen

    replay.change = flaky
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=replay)
    assert verdict.outcome == "faster"
    assert sum(trial.outcome == "crashed" for trial in verdict.trials) >= 2
    assert any("crashed and was started again" in note for note in verdict.notes)
    assert recompute(verdict) == verdict


def test_a_crashed_baseline_is_started_again_when_resumed(tmp_path: Path) -> None:
    broken = Replay({"slow.py": 100, "fast.py": 40}, change=crashed)
    for _ in range(2):
        with pytest.raises(JobFailedError):
            run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=broken)
    assert len(broken.specs) == 2
    mended = Replay({"slow.py": 100, "fast.py": 40})
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=mended)
    assert verdict.outcome == "faster"


def test_a_launch_that_ran_out_of_time_is_made_again_with_more(tmp_path: Path) -> None:
    def out_of_time(spec: LaunchSpec, seen: Observation) -> Observation:
        limit = spec.total_timeout_s or 0.0
        few = on_rank(seen, steps=seen.ranks[0].steps[:3])
        return few.model_copy(update={"stop_reason": f"time limit of {limit:.0f} s", "wall_s": limit})

    options = VerifyOptions(max_minutes=1.0)
    slow = Replay({"slow.py": 100, "fast.py": 40}, change=candidate_only(out_of_time))
    verdict = run_comparison(arms(), folder=tmp_path, options=options, launch=slow)
    assert verdict.outcome == "not-finished"
    again = Replay({"slow.py": 100, "fast.py": 40})
    verdict = run_comparison(arms(), folder=tmp_path, options=options, launch=again)
    assert verdict.outcome == "not-finished" and not again.specs  # no more time than before
    verdict = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(), launch=again)
    assert verdict.outcome == "faster"


def test_unproven_training_is_not_timed_where_that_helps_nobody(tmp_path: Path) -> None:
    def dropout(spec: LaunchSpec, seen: Observation) -> Observation:
        record = seen.ranks[0].parity
        if record is None:
            return seen
        steps = [s.model_copy(update={"losses": [s.losses[0] + len(replay.specs)]}) for s in record.steps]
        return on_rank(seen, parity=record.model_copy(update={"dropout_active": True, "steps": steps}))

    replay = Replay({"slow.py": 100, "fast.py": 40}, change=dropout)
    options = VerifyOptions(speed_when_unproven=False)
    verdict = run_comparison(arms(), folder=tmp_path, options=options, launch=replay)
    assert verdict.outcome == "undecided" and not any("timing" in made for made in replay.made)
    assert verdict.sentence.startswith("parity undecided: dropout"), verdict.sentence
    assert recompute(verdict) == verdict


def test_every_launch_made_is_told_with_its_time(tmp_path: Path) -> None:
    """Also the one that first tried whether the job bears deterministic algorithms."""
    told: list[tuple[str, bool]] = []

    def note(trial: Trial) -> None:
        told.append((trial.label, bool(trial.started_at)))

    for fresh in (True, False):
        told.clear()
        replay = Replay({"slow.py": 100, "fast.py": 40})
        run_comparison(
            arms(), folder=tmp_path, options=VerifyOptions(tier="bitwise"), launch=replay, on_trial=note
        )
        assert [made for _, made in told] == [fresh] * len(told) and len(told) >= 6


def test_what_was_finished_before_takes_no_minutes_of_a_resumed_comparison(tmp_path: Path) -> None:
    replay = Replay({"slow.py": 100, "fast.py": 40})
    first = run_comparison(arms(), folder=tmp_path, options=VerifyOptions(tier="numeric"), launch=replay)
    made = len(replay.made)
    assert first.outcome == "faster" and made >= 6
    little = VerifyOptions(tier="numeric", max_minutes=0.01)
    again = run_comparison(arms(), folder=tmp_path, options=little, launch=replay)
    assert len(replay.made) == made and again.outcome == "faster" and not again.notes
    plan = estimate_minutes(
        observation([100.0] * 20), little, ratio=2.5, finished=Finished.of(tmp_path, little, arms())
    )
    assert plan is not None and plan.launches_least == 0
