"""`autotune mcp`: offer the verbs to a client of the Model Context Protocol."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from autotune.cli.kinds import PathValue
from autotune.errors import InputError


@click.command("mcp", epilog="Example: autotune mcp --root ~/projects")
@click.option(
    "--root",
    type=PathValue(exists=True, file_okay=False),
    default=Path("."),
    show_default=True,
    help="Jobs start only in folders below this one.",
)
@click.option("--read-only", is_flag=True, help="Offer only the tools that start no job and write no file.")
def command(root: Path, read_only: bool) -> None:
    """Serve analyze, explain, apply, verify and report over stdio to a client of the Model Context Protocol.

    It runs the commands the client gives it, with your rights. Only connect clients that ask you first.
    """
    try:
        from autotune.mcp_server.server import build_server
    except ImportError as fault:
        raise InputError(
            f"the MCP SDK cannot be imported: {fault}",
            hint="pip install 'autotune-training[mcp]'",
            code="extra-missing",
        ) from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job that runs is stopped on the way out
    build_server(root, read_only=read_only).run("stdio")
