"""Which kernel packages fit a job's environment, and the exact commands that install them there.

Answers come from `rules/_tables/package_recipes.yaml`: versions that were tried together, what they need, how
long a build takes. What cannot be known (no compiler seen, no GPU seen) is said, not guessed.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from autotune.data import data_dir
from autotune.facts.versions import satisfies

# Most kernels compile within minutes; one that is known to take longer says so in the table.
DEADLINE_MINUTES = 30
State = Literal["installed", "fits", "does not fit", "unknown"]


@dataclass(frozen=True)
class Environment:
    """What decides: installed distributions, the GPU, the tools on the path."""

    packages: Mapping[str, str]  # lower-case name -> version
    compute_capability: float | None = None
    tools: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Advice:
    """One package: whether it fits, how to get it, and what to know before."""

    package: str
    state: State
    reason: str = ""
    command: str = ""
    build: str = ""  # how long a source build takes, where known
    instead: str = ""


def tools_here(names: Sequence[str] = ("nvcc",)) -> frozenset[str]:
    """The tools of this machine that recipes ask for."""
    import os

    homes = [os.path.join(home, "bin") for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    path = os.pathsep.join([os.environ.get("PATH", ""), *homes])
    return frozenset(name for name in names if shutil.which(name, path=path))


@dataclass(frozen=True)
class SourceBuild:
    """What is known of compiling a package."""

    expected: str  # in words: how long, and on what
    deadline_minutes: int  # past this something is wrong


def built_from_source(package: str) -> SourceBuild | None:
    """How a package is compiled; None for one that comes as a wheel, and for one without a recipe."""
    recipe = _table().get(_plain(package))
    if recipe is None or recipe["artefact"] != "source":
        return None
    known = (
        f"about {recipe['minutes']} minutes ({recipe['build']})" if "minutes" in recipe else "some minutes"
    )
    return SourceBuild(known, int(recipe.get("deadline_minutes", DEADLINE_MINUTES)))


def cannot_build(packages: Sequence[str], tools: frozenset[str] | None = None) -> str:
    """Why one of these cannot be compiled on this machine; empty when nothing stands against it."""
    here = tools_here() if tools is None else tools
    for package in packages:
        recipe = _table().get(_plain(package), {})
        missing = [tool for tool in recipe.get("tools", []) if tool not in here]
        if recipe.get("artefact") == "source" and missing:
            return f"{package} is compiled, and {', '.join(missing)} was not found on this machine"
    return ""


def environment_plan(environment: Environment, packages: Sequence[str] = ()) -> list[Advice]:
    """Advice for each package of the table, or for `packages` alone; what one brings along follows it."""
    wanted = list(packages) or list(_table())
    out: list[Advice] = []
    for name in wanted:
        out.append(_advise(name, environment))
        for extra in _table().get(name, {}).get("also", []):
            if extra["package"] not in wanted and _applies(extra, environment):
                partner = _advise(extra["package"], environment)
                out.append(Advice(**{**partner.__dict__, "reason": partner.reason or extra["why"]}))
    return out


def pins_for(package: str, environment: Environment) -> list[str]:
    """What to install for one package, partners included; the name itself where the table has no recipe."""
    recipe = _table().get(package)
    if recipe is None:
        return [package]
    pins = [str(pin) for pin in recipe["pins"]]
    for extra in recipe.get("also", []):
        if _applies(extra, environment):
            pins += [pin for pin in pins_for(extra["package"], environment) if pin not in pins]
    return pins


def pinned(package: str) -> list[str]:
    """The versions that were tried together for a bare name; anything else as it is."""
    return [str(pin) for pin in _table().get(package, {}).get("pins", [package])]


def build_variables(package: str) -> dict[str, str]:
    """Variables a source build wants."""
    return {str(k): str(v) for k, v in _table().get(_plain(package), {}).get("env", {}).items()}


def _plain(requirement: str) -> str:
    """`name` of `Name==1.0`."""
    return (
        requirement.split("=")[0].split("<")[0].split(">")[0].split("[")[0].strip().lower().replace("_", "-")
    )


@cache
def _table() -> dict[str, Any]:
    import yaml

    text = (data_dir("rules") / "_tables" / "package_recipes.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)["packages"]
    return loaded


def _advise(name: str, environment: Environment) -> Advice:
    recipe = _table().get(name)
    if recipe is None:
        return Advice(name, "unknown", "no recipe for this package")
    version = environment.packages.get(name)
    if version is not None:
        return Advice(name, "installed", version)
    state, reason = _verdict(recipe, environment)
    compiled = built_from_source(name)
    build = ""
    if compiled is not None:
        build = f"built from source: {compiled.expected}, stopped after {compiled.deadline_minutes}"
    return Advice(name, state, reason, _command(name, recipe, environment), build, recipe.get("instead", ""))


def _verdict(recipe: Mapping[str, Any], environment: Environment) -> tuple[State, str]:
    for needed, condition in recipe.get("needs", {}).items():
        there = environment.packages.get(needed)
        if there is None:
            return "does not fit", f"needs {needed} {condition}, which is not installed"
        answer = satisfies(there, condition)
        if answer is False:
            return "does not fit", f"needs {needed} {condition}, there is {there}"
        if answer is None:
            return "unknown", f"the version of {needed} ({there}) cannot be read"
    if "device" in recipe:
        if environment.compute_capability is None:
            return "unknown", "no NVIDIA GPU was seen"
        if satisfies(str(environment.compute_capability), recipe["device"]) is False:
            return "does not fit", f"needs a GPU of compute capability {recipe['device']}"
    missing = [tool for tool in recipe.get("tools", []) if tool not in environment.tools]
    if missing:
        return "unknown", f"{', '.join(missing)} was not found on this machine"
    return "fits", ""


def _applies(extra: Mapping[str, Any], environment: Environment) -> bool:
    if environment.packages.get(extra["package"]) is not None:
        return False
    capability = environment.compute_capability
    if capability is None or satisfies(str(capability), extra["device"]) is not True:
        return False
    return all(
        satisfies(environment.packages.get(name, ""), condition) is True
        for name, condition in extra.get("needs", {}).items()
    )


def _command(name: str, recipe: Mapping[str, Any], environment: Environment) -> str:
    pins = [str(pin) for pin in recipe["pins"]]
    if "window" in recipe:
        pins = [f"{name}{_window(name, environment)}"]
    variables = "".join(f"{k}={shlex.quote(str(v))} " for k, v in recipe.get("env", {}).items())
    options = "--no-deps" + (" --no-build-isolation" if recipe["artefact"] == "source" else "")
    return f"{variables}python -m pip install {options} {shlex.join(pins)}"


def _window(name: str, environment: Environment) -> str:
    """The range of versions the installed partner accepts; empty where the table knows none."""
    import yaml

    text = (data_dir("rules") / "_tables" / "version_windows.yaml").read_text(encoding="utf-8")
    for row in yaml.safe_load(text)["windows"]:
        partner = environment.packages.get(row["because_of"])
        if row["package"] == name and partner is not None and satisfies(partner, row["when"]):
            return str(row["allowed"])
    return ""
