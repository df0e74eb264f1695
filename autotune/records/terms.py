"""Closed vocabularies that several records share."""

from __future__ import annotations

from typing import Literal

Severity = Literal["info", "low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "low", "medium", "high", "critical")

Confidence = Literal["low", "medium", "high"]

Surface = Literal["flag", "config", "call-site", "env-var", "package", "shim", "script"]

# What must hold after a change: see docs/architecture.md.
Tier = Literal["bitwise", "numeric", "token-exact", "statistical"]

Applicability = Literal["safe", "review", "advice"]

# An option's number may not be larger: inf is no budget, and a product of larger ones may become inf.
LARGEST_NUMBER = 1e15
