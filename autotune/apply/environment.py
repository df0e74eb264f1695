"""A run's environment as files: pinned requirements, source builds with flags and deadline, a Dockerfile."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from autotune.data import data_dir
from autotune.errors import InputError
from autotune.facts.recipes import build_variables, built_from_source
from autotune.records.observation import EnvironmentRecord, Observation
from autotune.records.plan import PatchedJob

# What the driver and the interpreter bring; pip takes the fitting ones along with torch.
_BROUGHT = ("nvidia-", "cuda-", "pip", "setuptools", "wheel")


def environment_files(
    observation: Observation, job: PatchedJob | None, *, run: str, templates_dir: Path | None = None
) -> dict[str, str]:
    """File name -> text. `job` is the patched job that was proven; without one, what was watched alone.

    Raises InputError when the run did not record its environment.
    """
    seen = next((rank.environment for rank in observation.ranks if rank.environment.python), None)
    if seen is None or not seen.packages:
        raise InputError(
            "this run did not record which packages the job had",
            where=run,
            hint="watch it again: autotune analyze -- COMMAND",
        )
    values = _values(seen, job, run)
    files = {
        "requirements.txt": _render("requirements.txt.j2", values, templates_dir),
        "Dockerfile": _render("Dockerfile.j2", values, templates_dir),
    }
    if values["builds"]:
        files["build.sh"] = _render("build.sh.j2", values, templates_dir)
    return files


def _values(seen: EnvironmentRecord, job: PatchedJob | None, run: str) -> dict[str, Any]:
    added = {p.name: p.version for p in (job.packages if job else [])}
    names = {name.lower().replace("_", "-"): version for name, version in seen.packages.items()}
    names.setdefault("torch", seen.torch)
    there = [
        _pin(name, version)
        for name, version in sorted(names.items())
        if name not in added and not name.startswith(_BROUGHT)
    ]
    new = [_pin(name, version) for name, version in sorted(added.items())]
    # What is compiled in the watched environment has to be compiled again, too.
    compiled = [entry for entry in [*there, *new] if built_from_source(entry["name"]) is not None]
    return {
        "run": run,
        "what": "with the change that was proven there" if job else "as it was watched, without any change",
        "python": seen.python,
        "minor": ".".join(seen.python.split(".")[:2]),
        "cuda": seen.cuda,
        "device": seen.device_name,
        "watched": [entry for entry in there if entry not in compiled],
        "wheels": [entry["pin"] for entry in new if entry not in compiled],
        "builds": [_build(entry["name"], entry["pin"]) for entry in compiled],
        "variables": sorted(
            (name, shlex.quote(value))
            for name, value in (job.env if job else {}).items()
            if value and name != "PYTHONPATH"
        ),
    }


def _build(name: str, pin: str) -> dict[str, Any]:
    build = built_from_source(name)
    assert build is not None
    variables = "".join(f"{k}={shlex.quote(v)} " for k, v in build_variables(name).items())
    return {
        "pin": pin,
        "quoted": shlex.quote(pin),
        "variables": variables,
        "expected": build.expected,
        "deadline_minutes": build.deadline_minutes,
    }


def _pin(name: str, version: str) -> dict[str, str]:
    """A local version (2.11.0+cu130) says which build it is; its index is the reader's to name."""
    plain, _, local = version.partition("+")
    note = (
        f"the build {local} was watched; pip takes the default one unless its index is named" if local else ""
    )
    return {"name": name, "pin": f"{name}=={plain}", "note": note}


def _render(name: str, values: dict[str, Any], templates_dir: Path | None) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

    folder = templates_dir or data_dir("templates")
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell and requirement files, not HTML
    )
    try:
        return environment.get_template(f"environment/{name}").render(**values)
    except TemplateError as fault:
        raise InputError(
            f"the template cannot be rendered: {fault}", where=str(folder / "environment" / name)
        ) from None
