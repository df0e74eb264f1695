"""Jobs of the bench on a GPU: sizes that keep one busy, healthy twins, and what needs two GPUs.

A sick job is compared with its healthy twin: the reference with the same arguments on the same GPU. Faults of
one family and size share a twin. What autotune says of the twin too is no effect of the fault, and what the
fault costs is the ratio of their unprofiled steps.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.faults.analyse import Answer, installed
from bench.faults.cases import Case
from bench.faults.score import NOTHING, Causes, Mark, mark

KERNELS = ("fla", "causal_conv1d")
# Most telling first: what one twin serves stands together, and what compiles for minutes last.
ORDER = [
    *("item-on-grad-norm", "sync-in-fstring", "launch-blocking", "full-precision"),
    *("empty-cache-per-step", "deterministic", "full-logits", "reentrant-checkpointing"),
    *("mask-materialised", "lora-base-in-fp32", "offload-needless", "trainer-empty-cache"),
    *("trainer-logs-every-step", "accelerate-sync-in-fstring", "missing-kernels", "out-of-memory"),
    *("broken-kernel-package", "shape-churn", "fp32-collectives", "accelerate-sync-every-micro-batch"),
]
_LAST_TWINS = ("out-of-memory",)  # slow steps, and no step of the sick job to compare them with
_TINY = {
    "--width": "64",
    "--layers": "2",
    "--length": "64",
    "--batch-size": "2",
    "--vocabulary": "4096",
    "--prompt": "16",
    "--longest": "64",
    "--even-length": "64",
    "--head-dim": "16",
}


def sized(case: Case, tiny: bool = False) -> Case:
    """The case as it runs on a GPU; `tiny`: the same at sizes for a rehearsal on a CPU."""
    args = case.args if case.gpu_args is None else case.gpu_args
    return replace(
        case,
        args=_tiny(args) if tiny else args,
        processes=case.gpu_processes or case.processes,
    )


def _tiny(args: str) -> str:
    words = shlex.split(args)
    return shlex.join([_TINY.get(before, word) for before, word in zip(["", *words], words, strict=False)])


def twin_of(case: Case, kernels: bool) -> Case:
    """The healthy reference at the size of a case that `sized` gave."""
    return Case(
        id=f"twin-{case.id}",
        family=case.family,
        title=f"Healthy: {case.args or 'as it is'}",
        needs="gpu",
        args=case.args,
        processes=case.processes,
        gpus=case.gpus,
        kernels=kernels,
        limit_s=240.0 if kernels else None,
    )


@dataclass(frozen=True)
class Visit:
    """The jobs of a visit to a GPU, in order, and the twin of each sick one."""

    cases: tuple[Case, ...]
    twins: dict[str, str]  # id of a sick job -> id of its twin

    @property
    def sick(self) -> list[Case]:
        return [case for case in self.cases if not case.healthy]


def plan(cases: Iterable[Case], tiny: bool = False) -> Visit:
    """All faults that only a GPU shows, each twin in front of the first fault that it serves.

    A twin with the fused kernels, which its first start compiles, stands in front of the first such fault.
    """
    place = {name: number for number, name in enumerate(ORDER)}
    faults = [case for case in cases if case.needs == "gpu" and not case.healthy]
    faults.sort(key=lambda case: place.get(case.id, len(ORDER)))
    needs_kernels = {case.family for case in faults if case.kernels}
    made: dict[tuple[str, str, int, int], Case] = {}
    order: list[Case] = []
    late: dict[tuple[str, str, int, int], Case] = {}
    twins: dict[str, str] = {}
    for fault in faults:
        whole, case = sized(fault), sized(fault, tiny)
        key = (whole.family, whole.args, whole.processes, whole.gpus)
        if key not in made:
            made[key] = late[key] = twin_of(case, case.family in needs_kernels)
        if key in late and case.id not in _LAST_TWINS and case.kernels == late[key].kernels:
            order.append(late.pop(key))
        twins[case.id] = made[key].id
        order.append(case)
    return Visit((*order, *late.values()), twins)


def gpu_count() -> int:
    """GPUs that jobs may use, as nvidia-smi lists them; none without it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip()])
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True).stdout
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def check_kernels(folder: Path, python: str) -> None:
    """Refuse a folder in which the interpreter of the jobs does not find the fused kernels."""
    found = installed(KERNELS, python, folder)
    lacking = [name for name in KERNELS if name not in found]
    if lacking:
        raise SystemExit(f"--kernels {folder}: {python} finds no {' and no '.join(lacking)} there")


def cannot_run(case: Case, gpus: int, kernels: Path | None, python: str) -> str:
    """Why a job cannot be run here, or nothing."""
    if case.gpus > gpus:
        return f"needs {'two' if case.gpus == 2 else case.gpus} GPUs"
    if case.kernels and kernels is None:
        return "needs the folder with the fused kernels (--kernels)"
    visible = installed(case.absent, python)
    if visible:
        return f"needs an environment without {', '.join(visible)}"
    return ""


def _told(answer: Answer) -> list[str]:
    """The rules of its findings above info."""
    return [said.rule for said in answer.findings if said.severity != "info"]


@dataclass(frozen=True)
class Beside:
    """A sick job beside its healthy twin."""

    mark: Mark
    twin: Answer | None
    shared: tuple[str, ...]  # rules of false alarms that the twin gets too
    own: tuple[str, ...]  # rules of those that only the sick job gets
    first_of_own: bool  # the first finding that the twin does not get is a planted cause

    @property
    def slowdown(self) -> float | None:
        """Unprofiled time of a token, sick against healthy; of a step where tokens are unknown."""
        if self.twin is None or self.mark.answer.pace is None or self.twin.pace is None:
            return None
        return self.mark.answer.pace.against(self.twin.pace)

    @property
    def costs_nothing(self) -> bool:
        """A fault of time whose steps are no longer than those of the twin, at this size on this machine."""
        return self.mark.case.sick == "time" and self.slowdown is not None and self.slowdown < NOTHING

    @property
    def steps(self) -> tuple[int, int] | None:
        """Timed steps behind the slowdown: of the sick job and of its twin."""
        if self.slowdown is None:
            return None
        sick, twin = self.mark.answer.pace, self.twin.pace if self.twin else None
        return (sick.steps, twin.steps) if sick and twin else None


def beside(visit: Visit, answers: Sequence[Answer], causes: Causes) -> list[Beside]:
    """Every judged sick job with what its twin says, in the order of the visit."""
    given = {answer.case: answer for answer in answers}
    out = []
    for case in visit.sick:
        if case.id not in given:
            continue
        judged = mark(case, given[case.id], causes)
        twin = given.get(visit.twins[case.id])
        twin = None if twin is None or (twin.failure and not twin.findings) else twin
        common = _told(twin) if twin else []
        wrong = [said.rule for said in judged.false_alarms]
        own = [rule for rule in _told(judged.answer) if rule not in common]
        out.append(
            Beside(
                judged,
                twin,
                shared=tuple(rule for rule in wrong if rule in common),
                own=tuple(rule for rule in wrong if rule not in common),
                first_of_own=judged.first or (bool(own) and own[0] not in wrong),
            )
        )
    return out
