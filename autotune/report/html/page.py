"""The page as one text: template, style, figures and plotly's script, nothing left to load.

A content security policy lets only the two scripts written here run and forbids every request, so text from a
job that slipped through could still do nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from autotune.report.html.theme import PALETTE, swaps, variables
from autotune.report.html.view import Figure, Page

_ASSETS = Path(__file__).parent / "assets"


def render(page: Page) -> str:
    """The whole HTML text. Raises InputError without plotly."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    from autotune.report.html.figures.draw import plotly_script, require_plotly

    require_plotly()
    figures = [b for section in page.sections for b in section.blocks if isinstance(b, Figure)]
    script = _asset("page.js")
    library = plotly_script() if figures else ""
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        page=page,
        style=Markup(_style()),
        script=Markup(script),
        library=Markup(library),
        figures=Markup(_figures(figures)),
        policy=_policy([text for text in (library, script) if text]),
        has_figures=bool(figures),
    )


def _figures(figures: list[Figure]) -> str:
    """All figures and the colours of the dark page, as JSON that cannot end its script element."""
    from autotune.report.html.figures.draw import figure_json

    parts = ",".join(f"{json.dumps('plot-' + figure.id)}:{figure_json(figure.plot)}" for figure in figures)
    text = f'{{"swaps":{json.dumps(swaps())},"figures":{{{parts}}}}}'
    return script_safe(text)


def script_safe(text: str) -> str:
    """JSON for a script element: what could end it, or open a comment, is written as an escape."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _policy(scripts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _style() -> str:
    keys = "".join(f".key.{name}{{--key:var(--{name})}}" for name in PALETTE)
    text = _asset("page.css")
    return keys + text.replace("/*light*/", variables(dark=False)).replace("/*dark*/", variables(dark=True))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
