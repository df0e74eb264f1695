"""The planted faults and healthy jobs as data, and the folder of one job made from them."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

HERE = Path(__file__).parent
REFERENCES = HERE / "references"
PLANTED = HERE / "planted"


@dataclass(frozen=True)
class Edit:
    """A piece of a reference that becomes another; `search` occurs exactly once."""

    search: str
    replace: str
    file: str = ""  # the reference itself when empty


@dataclass(frozen=True)
class Case:
    """One job of the bench. A healthy one has no cause; a pair has the causes of its parts."""

    id: str
    family: str
    title: str
    needs: str = "cpu"  # cpu, or gpu where only a GPU shows the cost
    does: str = ""
    args: str = ""  # of the reference and of the sick job
    processes: int = 1
    gpu_args: str | None = None  # in their place on a GPU: a size at which the fault shows there
    gpu_processes: int | None = None  # likewise
    gpus: int = 1  # that a run on GPUs needs
    kernels: bool = False  # meant to run with the fused kernels (on a GPU)
    limit_s: float | None = None  # of a job that may take longer than others
    env: dict[str, str] = field(default_factory=dict)  # the sick job's only
    files: dict[str, str] = field(default_factory=dict)  # laid beside the sick job
    absent: tuple[str, ...] = ()  # packages that the sick job must not find
    edits: tuple[Edit, ...] = ()
    sick: str = "time"  # time, memory or correctness
    cause: str = ""
    slugs: tuple[str, ...] = ()  # of each planted cause
    also: tuple[str, ...] = ()  # slugs that say the same in other words
    fix: str = ""
    fix_ratio: tuple[float, float] | None = None
    named_by: str = ""  # a piece of the sick file, or of its launch, that a finding should point at
    parts: tuple[str, ...] = ()  # of a pair: the single faults in it

    @property
    def healthy(self) -> bool:
        return not self.slugs

    @property
    def distributed(self) -> bool:
        """The reference joins a process group, also when it is alone."""
        return self.family in ("ddp", "fsdp2")

    @property
    def script(self) -> str:
        return f"{self.family}.py"


def load_cases() -> list[Case]:
    """Every case: single faults, then pairs, then healthy jobs. Raises ValueError for a bad file."""
    singles: dict[str, Case] = {}
    for path in sorted(PLANTED.glob("*.yaml")):
        data = yaml.safe_load(path.read_text())
        for entry in data.get("faults", []):
            case = _single(entry, data)
            if case.id in singles:
                raise ValueError(f"{path.name}: {case.id} stands twice")
            singles[case.id] = case
    others = yaml.safe_load((HERE / "pairs.yaml").read_text())["pairs"]
    healthy = yaml.safe_load((HERE / "healthy.yaml").read_text())["healthy"]
    pairs = [_pair(entry, singles) for entry in others]
    return [*singles.values(), *pairs, *(Case(**entry) for entry in healthy)]


def _single(entry: dict[str, object], data: dict[str, object]) -> Case:
    entry = dict(entry)
    entry["family"] = data["family"]
    entry.setdefault("processes", data.get("processes", 1))
    if entry.get("needs") == "gpu":
        entry["kernels"] = bool(data.get("kernels")) and not entry.get("absent")
    entry["slugs"] = (entry.pop("slug"),)
    entry["edits"] = tuple(Edit(**edit) for edit in entry.get("edits", []))  # type: ignore[attr-defined]
    for name in ("also", "fix_ratio", "absent"):
        if entry.get(name) is not None:
            entry[name] = tuple(entry[name])  # type: ignore[arg-type]
    return Case(**entry)  # type: ignore[arg-type]


def _pair(entry: dict[str, object], singles: dict[str, Case]) -> Case:
    parts = [singles[str(name)] for name in entry["of"]]  # type: ignore[attr-defined]
    if len({part.family for part in parts}) != 1:
        raise ValueError(f"{entry['id']}: the parts are of different families")
    return Case(
        id=str(entry["id"]),
        family=parts[0].family,
        title=" + ".join(part.title for part in parts),
        args=str(entry.get("args", "")),
        processes=parts[0].processes,
        env={name: value for part in parts for name, value in part.env.items()},
        edits=tuple(edit for part in parts for edit in part.edits),
        cause="; ".join(part.cause for part in parts),
        slugs=tuple(part.slugs[0] for part in parts),
        also=tuple(slug for part in parts for slug in part.also),
        fix="; ".join(part.fix for part in parts),
        fix_ratio=tuple(entry["fix_ratio"]) if "fix_ratio" in entry else None,  # type: ignore[arg-type]
        parts=tuple(part.id for part in parts),
    )


def edited_sources(case: Case) -> dict[str, str]:
    """The sick job's files by name. Raises ValueError where an edit does not apply exactly once."""
    sources = {name: (REFERENCES / name).read_text() for name in (case.script, "corpus.py")}
    for edit in case.edits:
        name = edit.file or case.script
        found = sources[name].count(edit.search)
        if found != 1:
            raise ValueError(f"{case.id}: applies {found} times in {name}: {edit.search!r}")
        sources[name] = sources[name].replace(edit.search, edit.replace)
    return {**sources, **case.files}


def lay_out(case: Case, folder: Path, *, sick: bool = True) -> None:
    """Write the job's files into a folder; the healthy reference with `sick` false."""
    if sick:
        sources = edited_sources(case)
    else:
        sources = {name: (REFERENCES / name).read_text() for name in (case.script, "corpus.py")}
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def command(case: Case, python: str = sys.executable, steps: int = 200) -> list[str]:
    """What is typed in the job's folder to start it."""
    launcher = [python]
    if case.processes > 1 or case.distributed:
        launcher = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(case.processes)]
    return [*launcher, case.script, "--steps", str(steps), *shlex.split(case.args)]
