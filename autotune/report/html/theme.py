"""Colours of the page, light and dark. Figures are drawn in the light ones; the page's script swaps them."""

from __future__ import annotations

# name -> (light, dark). Every light value is used once, so that swapping can tell them apart.
PALETTE: dict[str, tuple[str, str]] = {
    "ink": ("#1f2328", "#e6edf3"),
    "muted": ("#59636e", "#9aa4af"),
    "grid": ("#e1e4e8", "#30363d"),
    "surface": ("#ffffff", "#161b22"),
    "band": ("#e3edfb", "#1d3050"),
    "tint": ("#fbefd9", "#3d3014"),
    "blue": ("#2f6fdb", "#6ea8fe"),
    "orange": ("#d9730d", "#f0953f"),
    "green": ("#1a8f5c", "#4cc38a"),
    "purple": ("#8250df", "#b392f0"),
    "pink": ("#c2408f", "#e58ac1"),
    "teal": ("#0f8b8d", "#4fc3c7"),
    "gold": ("#a67c00", "#d9b44a"),
    "indigo": ("#4b3fb5", "#9d95f5"),
    "olive": ("#5f7d1c", "#a3c14a"),
    "brown": ("#8a5a3c", "#c69c7b"),
    "slate": ("#57606a", "#aeb7c0"),
    "red": ("#cf222e", "#ff7b72"),
    "gray": ("#8c959f", "#7d8590"),
    "idle": ("#c9d1d9", "#444c56"),
}


def light(name: str) -> str:
    """The colour figures are drawn in."""
    return PALETTE[name][0]


def swaps() -> dict[str, str]:
    """Light to dark."""
    return dict(PALETTE.values())


def variables(*, dark: bool) -> str:
    """The palette as CSS custom properties."""
    return "".join(f"--{name}:{pair[dark]};" for name, pair in PALETTE.items())
