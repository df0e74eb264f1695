"""Groups of verbs that suggest the nearest name when one is mistyped."""

from __future__ import annotations

from difflib import get_close_matches

import click


class SuggestingGroup(click.Group):
    """A group whose unknown command is answered with the nearest known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"{ctx.command_path} --help lists them"
            raise UnknownCommandError(f"there is no command '{name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)


class UnknownCommandError(click.UsageError):
    """A command that does not exist; the message says what might have been meant."""
