"""When a launch cannot be trusted: throttled GPUs, foreign work on them, moved clocks, a stalled machine.

A block with such a launch is set aside, said, and run again; it is judged by the state of the machine and by
the arm's own other launches, never by which arm it favours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from autotune.records.observation import CpuLoad, DeviceSample
from autotune.records.verdict import Block, MachineState, Trial, Unit
from autotune.shared_cpu import CPU_IDLE, CPU_TAKEN, CpuShare, shared_note

# A power cap is left out: a better arm may well run into it, so it belongs to the arm.
FAULTY_THROTTLING = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
THROTTLED_SHARE = 0.05  # of the samples
CLOCK_MOVED = 0.05
STALLED = 1.25  # against the arm's other launches
AGREE = 1.10  # how well those must agree to say so
BUSY = 0.3  # utilisation from which a sample's clock counts


def machine_state(samples: Sequence[DeviceSample], load: CpuLoad | None = None) -> MachineState:
    """What NVML and the kernel's CPU times showed during one launch."""
    state = MachineState()
    if load is not None:
        state = MachineState(
            cpu_cores=load.cores, cpu_foreign_cores=load.foreign_cores, cpu_idle_frac=load.idle_frac
        )
    if not samples:
        return state
    busy = [s for s in samples if (s.utilisation_frac or 0.0) >= BUSY] or list(samples)
    clocks = [s.sm_clock_mhz for s in busy if s.sm_clock_mhz is not None]
    reasons = {reason for s in busy for reason in s.throttle_reasons or ()}
    often = sorted(
        r for r in reasons if sum(r in (s.throttle_reasons or ()) for s in busy) > THROTTLED_SHARE * len(busy)
    )
    foreign = [s.foreign_processes for s in samples if s.foreign_processes is not None]
    return state.model_copy(
        update={
            "samples": len(samples),
            "sm_clock_mhz": fmean(clocks) if clocks else None,
            "throttle_reasons": often,
            "foreign_processes": max(foreign, default=None),
        }
    )


def machine_fault(trials: Mapping[str, Trial]) -> str | None:
    """What was wrong with the machine during one block; None when nothing was seen."""
    for arm, trial in trials.items():
        if trial.machine.foreign_processes:
            return f"another process used the GPU while {arm} ran"
    states = {arm: FAULTY_THROTTLING.intersection(t.machine.throttle_reasons) for arm, t in trials.items()}
    if len(set(states.values())) > 1:
        arm = max(states, key=lambda name: len(states[name]))
        return (
            f"the GPU was throttled ({', '.join(sorted(states[arm]))}) while {arm} ran, and not in the others"
        )
    return _cpu_fault(trials)


def _cpu_fault(trials: Mapping[str, Trial]) -> str | None:
    """Other programs took cores from one arm and not from the others.

    Where cores stay idle nothing was taken. A load that is the same for all arms slows them alike.
    """
    states = {arm: trial.machine for arm, trial in trials.items()}
    known = {
        arm: (state.cpu_foreign_cores, state.cpu_cores)
        for arm, state in states.items()
        if state.cpu_foreign_cores is not None and state.cpu_cores
    }
    if len(known) < len(trials):
        return None
    shares = {arm: foreign / cores for arm, (foreign, cores) in known.items() if cores}
    most, least = max(shares, key=lambda a: shares[a]), min(shares, key=lambda a: shares[a])
    crowded = (states[most].cpu_idle_frac or 0.0) < CPU_IDLE
    if not crowded or shares[most] - shares[least] <= CPU_TAKEN:
        return None
    cores = known[most][1]
    return (
        f"other programs used {known[most][0]:.1f} of {cores} cores while {most} ran, "
        f"and {known[least][0]:.1f} while {least} ran"
    )


def load_note(trials: Sequence[Trial]) -> str | None:
    """Timed launches that shared their cores: also when all arms did alike, and no block is set aside."""
    return shared_note([share for trial in trials if (share := _cpu_share(trial)) is not None])


def _cpu_share(trial: Trial) -> CpuShare | None:
    state = trial.machine
    if not state.cpu_cores or state.cpu_foreign_cores is None or state.cpu_idle_frac is None:
        return None
    return CpuShare(state.cpu_cores, state.cpu_foreign_cores, state.cpu_idle_frac)


def odd_block(block: Block, others: Sequence[Block], trials: Mapping[str, Trial], unit: Unit) -> str | None:
    """Why this block differs from the arms' own other launches; None when it does not.

    Needs two other blocks that agree with each other: with fewer nobody can say which one is odd.
    """
    if len(others) < 2:
        return None
    if (crowded := _crowded_block(block, others, trials)) is not None:
        return crowded
    for arm, figure in block.figures.items():
        rest = [other.figures[arm].value for other in others if arm in other.figures]
        if len(rest) >= 2 and max(rest) <= AGREE * min(rest):
            slow = figure.value / median(rest) if unit == "ms/step" else median(rest) / figure.value
            if slow > STALLED:
                return f"{arm} stalled: {slow:.2f}x its usual time in this launch"
        clocks = [c for o in others if arm in o.figures and (c := _clock(trials, o, arm)) is not None]
        own = _clock(trials, block, arm)
        if own is not None and len(clocks) >= 2 and max(clocks) <= (1 + CLOCK_MOVED) * min(clocks):
            moved = own / median(clocks) - 1
            if abs(moved) > CLOCK_MOVED:
                return f"the GPU clock was {moved:+.0%} off its usual while {arm} ran"
    return None


def _crowded_block(block: Block, others: Sequence[Block], trials: Mapping[str, Trial]) -> str | None:
    """Other programs took cores from every arm of this block, and from none of two or more others.

    A load that lasts slows all arms alike and is part of the machine; one that comes and goes is not.
    """
    shares = [_cpu_share(trials[figure.label]) for figure in block.figures.values()]
    if not all(share is not None and share.is_shared for share in shares):
        return None
    quiet = 0
    for other in others:
        theirs = [_cpu_share(trials[figure.label]) for figure in other.figures.values()]
        quiet += all(share is not None and not share.is_shared for share in theirs)
    if quiet < 2:
        return None
    taken = fmean(share.foreign_cores for share in shares if share is not None)
    cores = next(share.cores for share in shares if share is not None)
    return f"other programs used {taken:.1f} of {cores} cores while it ran, and hardly any in {quiet} others"


def _clock(trials: Mapping[str, Trial], block: Block, arm: str) -> float | None:
    trial = trials.get(block.figures[arm].label)
    return trial.machine.sm_clock_mhz if trial else None


def drift_note(blocks: Sequence[Block], baseline: str, unit: Unit) -> str | None:
    """A machine that got slower or faster over the session; alternation keeps it out of the ratio."""
    values = [block.figures[baseline].value for block in blocks if baseline in block.figures]
    if len(values) < 3:
        return None
    steps = [after - before for before, after in pairwise(values)]
    change = values[-1] / values[0] - 1
    if abs(change) <= CLOCK_MOVED or not (all(s > 0 for s in steps) or all(s < 0 for s in steps)):
        return None
    slower = (change > 0) == (unit == "ms/step")
    return (
        f"the machine got {'slower' if slower else 'faster'} from block to block ({abs(change):.0%} in all); "
        f"the arms alternate, so the ratio does not contain it"
    )
