"""Small self-contained modules that go beside a patched copy, rendered from `templates/shims/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from autotune.data import data_dir
from autotune.errors import InputError

MODULE_NAME = re.compile(r"autotune_[a-z0-9_]+")


def render_shim(template: str, arguments: Mapping[str, object], templates_dir: Path | None = None) -> str:
    """The source of a shim. Raises InputError for a template that is missing or broken."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound

    folder = templates_dir or data_dir("templates")
    # Shims are Python, not HTML: nothing is escaped.
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    try:
        text = environment.get_template(template).render(**arguments)
    except TemplateNotFound:
        raise InputError(
            "there is no such template", where=str(folder / template), code="template-broken"
        ) from None
    except TemplateError as fault:
        raise InputError(
            f"the template cannot be rendered: {fault}", where=str(folder / template), code="template-broken"
        ) from None
    try:
        compile(text, template, "exec", dont_inherit=True)
    except SyntaxError as fault:
        raise InputError(
            f"the template gives no Python: {fault.msg} (line {fault.lineno})",
            where=str(folder / template),
            code="template-broken",
        ) from None
    return text
