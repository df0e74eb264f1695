"""Small self-contained modules that go beside a patched copy, rendered from `templates/shims/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from autotune.data import data_dir
from autotune.errors import InputError

MODULE_NAME = re.compile(r"autotune_[a-z0-9_]+")


def render_shim(template: str, arguments: Mapping[str, object], templates_dir: Path | None = None) -> str:
    """The source of a shim, from the name of a template or, for a pack's own, from its text.

    Raises InputError for a template that is missing or broken.
    """
    from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    folder = templates_dir or data_dir("templates")
    is_text = "\n" in template
    where = "the pack's own shim" if is_text else str(folder / template)
    # Shims are Python, not HTML: nothing is escaped.
    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    try:
        found = environment.from_string(template) if is_text else environment.get_template(template)
        text = found.render(**arguments)
    except TemplateNotFound:
        raise InputError("there is no such template", where=where, code="template-broken") from None
    except (TemplateError, ArithmeticError, TypeError, ValueError, LookupError, MemoryError) as fault:
        raise InputError(
            f"the template cannot be rendered: {fault}", where=where, code="template-broken"
        ) from None
    try:
        compile(text, where, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as fault:
        line = getattr(fault, "lineno", None)
        raise InputError(
            f"the template gives no Python: {getattr(fault, 'msg', fault)} (line {line})",
            where=where,
            code="template-broken",
        ) from None
    return text
