"""`autotune completion`: the script that teaches a shell to complete autotune's words."""

from __future__ import annotations

import click

from autotune.cli.common import current_screen, output_options


@click.command("completion", epilog="Example: autotune completion bash > autotune.bash")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@output_options
def command(shell: str) -> None:
    """Print the completion script of a shell: verbs, options and their values.

    \b
    bash  autotune completion bash > ~/.local/share/bash-completion/completions/autotune
    zsh   autotune completion zsh > "${fpath[1]}/_autotune"
    fish  autotune completion fish > ~/.config/fish/completions/autotune.fish
    """
    from click.shell_completion import get_completion_class

    from autotune.cli.main import cli
    from autotune.records.answers import CompletionAnswer

    screen = current_screen()
    maker = get_completion_class(shell)
    assert maker is not None  # the three shells are click's own
    script = maker(cli, {}, "autotune", "_AUTOTUNE_COMPLETE").source()
    if screen.as_json:
        screen.document(CompletionAnswer(shell=shell, script=script))
    else:
        screen.answer(script.rstrip("\n"))
