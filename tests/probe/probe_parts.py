"""The probe's modules as a launch loads them: a package under a private name, from its folder."""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from autotune.data import probe_dir

NAME = "_autotune_probe"


def part(name: str) -> ModuleType:
    """One module of the probe."""
    if NAME not in sys.modules:
        folder = probe_dir()
        spec = spec_from_file_location(NAME, folder / "__init__.py", submodule_search_locations=[str(folder)])
        assert spec is not None and spec.loader is not None
        package = module_from_spec(spec)
        sys.modules[NAME] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{NAME}.{name}")
