"""The version, apart from the package's front door: modules that print it must not import upwards."""

from __future__ import annotations

__version__ = "0.1.0"
