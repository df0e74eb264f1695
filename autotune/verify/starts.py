"""The starts a comparison is made of, and which of them a run holds already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autotune.verify.arm import Arm, VerifyOptions
from autotune.verify.launches import FEW_STEPS, Bench, Request

if TYPE_CHECKING:
    from pathlib import Path

    from autotune.observe.spec import LaunchSpec
    from autotune.records.observation import Observation

_BY_MODULE = ("numeric", "token-exact")  # where kernels may be replaced


def parity_request(
    options: VerifyOptions,
    arm: Arm,
    number: int,
    seed: int | None,
    *,
    reference: Arm,
    deterministic: bool = False,
) -> Request:
    """A launch whose training is compared. Seeds after the first are added to those that the job sets."""
    drawn = options.tier == "statistical" and seed is not None
    return Request(
        purpose="parity",
        arm=arm,
        number=number,
        seed=seed,
        seed_shift=(seed or 0) - options.seeds[0] if drawn else 0,
        deterministic=deterministic,
        isolation=options.tier != "bitwise",
        example_steps=options.parity_steps if drawn else FEW_STEPS,
        modules_of=reference if number == 1 and options.tier in _BY_MODULE else None,
    )


def timing_request(
    options: VerifyOptions, arm: Arm, block: int, *, position: int = 0, attempt: int = 1
) -> Request:
    """One arm's launch of a block."""
    return Request(
        purpose="timing", arm=arm, block=block, position=position, attempt=attempt, seed=options.seed
    )


@dataclass(frozen=True)
class Finished:
    """Which launches of a comparison need not be made again: other trials or an earlier loop made them.

    `arms` in their order, as far as they are known: those behind them count as not started.
    """

    bench: Bench
    arms: Sequence[Arm]
    reference: Arm

    @classmethod
    def of(
        cls, folder: Path, options: VerifyOptions, arms: Sequence[Arm], reference: Arm | None = None
    ) -> Finished:
        """Of a comparison in this folder with these options."""
        return cls(Bench(folder, options, _never), arms, reference or arms[0])

    def parity(self, arm: int, number: int, seed: int | None) -> bool:
        """Whether the parity launch of the arm in this place is there."""
        options, reference = self.bench.options, self.reference
        kinds = (
            (True, False) if options.tier == "bitwise" else (False,)
        )  # the latter where none is deterministic
        return any(
            self._has(
                arm, parity_request(options, job, number, seed, reference=reference, deterministic=kind)
            )
            for kind in kinds
            for job in self.arms[arm : arm + 1]
        )

    def timing(self, arm: int, block: int) -> bool:
        """Whether the launch of this block is there, of the arm in this place."""
        options = self.bench.options
        return any(self._has(arm, timing_request(options, job, block)) for job in self.arms[arm : arm + 1])

    def warm(self, arm: int) -> bool:
        """Whether the launch that fills this arm's caches is there."""
        seed = self.bench.options.seed
        return any(
            self._has(arm, Request(purpose="warm", arm=job, seed=seed)) for job in self.arms[arm : arm + 1]
        )

    def _has(self, arm: int, request: Request) -> bool:
        """A crash of the baseline is no result: it is started again."""
        return self.bench.has(replace(request, redo_crashed=arm == 0))


def _never(spec: LaunchSpec) -> Observation:
    raise AssertionError("only looked at")
