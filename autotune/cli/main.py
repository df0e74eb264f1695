"""The command line: verbs loaded when they are called, faults turned into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import traceback
from difflib import get_close_matches

import click

from autotune import __version__
from autotune.errors import AutotuneError, Exit

# verb -> (module, one line of help); the module defines a click command called `command`
_VERBS: dict[str, tuple[str, str]] = {
    "optimize": ("autotune.cli.optimize", "Find, apply and prove what makes a training command faster."),
    "analyze": ("autotune.cli.analyze", "Watch an unchanged training command and say why it is slow."),
    "apply": ("autotune.cli.apply", "Show, write or take back the patched copy of a run."),
    "verify": ("autotune.cli.verify", "Rerun the original and the patched job and compare speed and loss."),
    "report": ("autotune.cli.report", "Show the diagnosis of a run again."),
    "trace": ("autotune.cli.trace", "Tables of saved profiler traces, without rules."),
    "diff": ("autotune.cli.diff", "Compare two runs or traces: the same tables before and after."),
    "runs": ("autotune.cli.runs", "List the runs."),
    "show": ("autotune.cli.show", "Show one run: its records and where they lie."),
    "rules": ("autotune.cli.rules", "List, explain, lint and test the rules."),
    "facts": ("autotune.cli.facts", "List the facts that rules can use."),
    "doctor": ("autotune.cli.doctor", "Check this machine and a job's interpreter for what autotune needs."),
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _VERBS.get(cmd_name)
        if entry is None:
            return None
        command = importlib.import_module(entry[0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _VERBS and not name.startswith("-"):
            near = get_close_matches(name, _VERBS, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "; autotune --help lists them"
            raise click.UsageError(f"there is no command '{name}'{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="autotune")
def cli() -> None:
    """Put autotune in front of a training command to learn why it is slow and to get a faster, proven copy.

    \b
    autotune optimize -- python train.py --epochs 1
    autotune analyze  -- torchrun --nproc-per-node 2 train.py
    """


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code and never raises."""
    try:
        outcome = cli.main(args=arguments, prog_name="autotune", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return int(leave.exit_code)
    except click.UsageError as fault:
        where = f" ({fault.ctx.command_path} --help)" if fault.ctx else ""
        _say(f"{fault.format_message()}{where}")
        return int(Exit.BAD_INPUT)
    except click.ClickException as fault:
        _say(fault.format_message())
        return int(Exit.BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted; what was recorded is kept")
        return int(Exit.INTERRUPTED)
    except AutotuneError as fault:
        _say(str(fault))
        return int(fault.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.DONE)
    except OSError as fault:
        path = fault.filename or "a file"
        _say(f"{path}: {fault.strerror or fault}; check the folder's rights and free space")
        return int(Exit.FILES)
    except Exception:
        _say(f"a bug of ours: {_keep_traceback()}")
        return int(Exit.BUG)
    return int(outcome) if isinstance(outcome, int) else int(Exit.DONE)


def _say(text: str) -> None:
    """One line: foreign text in a message (an exception's, a file name) may hold line breaks."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    print(f"autotune: {line}", file=sys.stderr, flush=True)


def _keep_traceback() -> str:
    text = traceback.format_exc()
    last = text.strip().splitlines()[-1]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="autotune-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as out:
            out.write(text)
    except OSError:
        return f"{last} (the traceback could not be saved)"
    return f"{last}; the traceback is in {out.name}, please report it"
