"""`autotune mcp`: the verbs as tools of the Model Context Protocol over stdio.

The server runs the training commands it is handed, with the rights of the user who started it (docs/mcp.md).
Commands are argument lists and never pass through a shell, and jobs start only in folders below `root`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from autotune.mcp_server.answers import VerbFailedError, answer_of
from autotune.mcp_server.child import Said, run_verb
from autotune.version import __version__

_INSTRUCTIONS = (
    "autotune finds out why a training job is slow, makes a patched copy of it and proves the speed-up. "
    "Order: analyze, then apply (a diff), then verify. A bound is not a gain: only verify measures one. "
    'Commands are lists of words, for example ["python", "train.py", "--epochs", "1"].'
)

Answer = dict[str, Any]
Ctx = Context[Any, Any]
Command = Annotated[list[str], Field(description="The training command as a list of words; no shell.")]
Folder = Annotated[str, Field(description="Project folder, relative to the server's root.")]
RunName = Annotated[str, Field(description="A run's name, a unique part of it, or 'latest'.")]
Detail = Annotated[bool, Field(description="Also the long parts of the record: every fact, every step.")]
Rules = Annotated[list[str], Field(description="Rule ids or categories such as 'batching/*'; empty: all.")]


def build_server(root: Path, *, read_only: bool = False) -> MCPServer[Any]:
    """The server with its tools; with `read_only` those that start no job and write only into runs."""
    server: MCPServer[Any] = MCPServer(
        "autotune", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    tools = _Tools(root.resolve())
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    runs = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
    server.add_tool(tools.analyze_traces, annotations=reads)
    server.add_tool(tools.explain, annotations=reads)
    server.add_tool(tools.report, annotations=reads)
    if not read_only:
        server.add_tool(tools.analyze, annotations=runs)
        server.add_tool(tools.apply, annotations=runs)
        server.add_tool(tools.verify, annotations=runs)
    return server


class _Tools:
    """The tools; their docstrings are what a client shows."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def analyze(
        self,
        ctx: Ctx,
        command: Command,
        folder: Folder = ".",
        steps: Annotated[int, Field(ge=3, le=10_000, description="Steps to time.")] = 12,
        detail: Detail = False,
    ) -> Answer:
        """Run a training command for a few steps, unchanged, and say why it is slow.

        Starts the command with the user's rights, stops it after the steps, and keeps its saves in the run
        folder. Takes minutes. The answer is the diagnosis: verdict, findings with evidence and places, what
        could not be decided.
        """
        if not command:
            raise ToolError("the command is empty")
        said = await self._run(ctx, folder, ["analyze", "--json", f"--steps={steps}", "--", *command])
        return _answer(said, "diagnosis", detail)

    async def analyze_traces(
        self,
        ctx: Ctx,
        traces: Annotated[list[str], Field(description="Profiler traces, .json or .json.gz, or folders.")],
        folder: Folder = ".",
        detail: Detail = False,
    ) -> Answer:
        """Say why a job is slow from profiler traces that were saved earlier. Starts no job."""
        said = await self._run(ctx, folder, ["analyze", "--json", "--trace", "--", *traces])
        return _answer(said, "diagnosis", detail)

    async def explain(
        self,
        ctx: Ctx,
        rule: Annotated[str, Field(description="Id of a rule, for example attention/eager.")],
        run: Annotated[str | None, Field(description="Show the condition with this run's values.")] = None,
        folder: Folder = ".",
    ) -> Answer:
        """Explain one rule: when it fires, what it is worth at most, its fixes and cautions."""
        with_run = [f"--run={run}"] if run else []
        said = await self._run(ctx, folder, ["rules", "explain", "--json", *with_run, "--", rule])
        return _answer(said, "explanation", True)

    async def report(
        self, ctx: Ctx, run: RunName = "latest", folder: Folder = ".", detail: Detail = False
    ) -> Answer:
        """The diagnosis of an earlier run."""
        said = await self._run(ctx, folder, ["report", "--json", "--", run])
        return _answer(said, "diagnosis", detail)

    async def apply(
        self,
        ctx: Ctx,
        run: RunName = "latest",
        folder: Folder = ".",
        select: Rules = [],  # noqa: B006  (read, never changed)
        exclude: Rules = [],  # noqa: B006
        write: Annotated[bool, Field(description="Put the patched copy beside the original.")] = False,
    ) -> Answer:
        """Make the patched copy of a run's job and return its diff and launch command.

        Without `write` nothing outside the run folder changes; with it the copy is put beside the original,
        which stays as it is. Packages that a fix needs are installed into the run folder.
        """
        await self._refuse_outside(ctx, folder, run)
        options = [*_choice(select, exclude), *(["--write"] if write else [])]
        said = await self._run(ctx, folder, ["apply", "--json", *options, "--", run])
        answer = _answer(said, "manifest", True)
        shown = _answer(await self._run(ctx, folder, ["show", "--json", "--", run]), "run", True)
        diff = Path(shown["run"]["folder"]) / answer["manifest"]["diff"]
        return {**answer, "diff": diff.read_text(encoding="utf-8")}

    async def verify(
        self,
        ctx: Ctx,
        run: RunName = "latest",
        folder: Folder = ".",
        select: Rules = [],  # noqa: B006
        exclude: Rules = [],  # noqa: B006
        min_pairs: Annotated[int, Field(ge=2, le=50)] = 3,
        max_pairs: Annotated[int, Field(ge=2, le=50)] = 8,
        max_minutes: Annotated[float | None, Field(gt=0)] = None,
        detail: Detail = False,
    ) -> Answer:
        """Rerun the original and the patched job alternately; the ratio with its interval, and loss parity.

        Starts the job many times with the user's rights and takes minutes. Exit code 0: faster and training
        unchanged; 5: slower, or training changed; 6: undecided.
        """
        await self._refuse_outside(ctx, folder, run)
        options = [*_choice(select, exclude), f"--min-pairs={min_pairs}", f"--max-pairs={max_pairs}"]
        if max_minutes is not None:
            options.append(f"--max-minutes={max_minutes}")
        said = await self._run(ctx, folder, ["verify", "--json", *options, "--", run])
        return _answer(said, "verdict", detail)

    async def _refuse_outside(self, ctx: Ctx, folder: str, run: str) -> None:
        """A run can be named by its path, and can have watched a job anywhere."""
        shown = _answer(await self._run(ctx, folder, ["show", "--json", "--", run]), "run", True)["run"]
        for what, place in (("this run", shown["folder"]), ("the job of this run", shown["run"]["cwd"])):
            if place and not Path(place).resolve().is_relative_to(self.root):
                raise ToolError(f"{what} lies in {place}, outside the server's root; --root allows it")

    def _folder(self, name: str) -> Path:
        try:
            folder = (self.root / name).resolve()
            there = folder.is_dir()
        except (OSError, ValueError) as fault:  # a name that no file can have
            raise ToolError(f"there is no such folder: {fault}") from None
        if not folder.is_relative_to(self.root):
            raise ToolError(
                f"the folder '{name}' is outside the server's root; start it with --root to allow it"
            )
        if not there:
            raise ToolError(f"there is no folder '{name}' below the server's root")
        return folder

    async def _run(self, ctx: Ctx, folder: str, arguments: Sequence[str]) -> Said:
        async def say(elapsed_s: float, line: str) -> None:
            await ctx.report_progress(elapsed_s, None, line)

        place = self._folder(folder)
        try:
            return await run_verb(arguments, place, say)
        except (OSError, ValueError) as fault:  # a zero byte, or more than a command line can hold
            raise ToolError(f"these arguments cannot be passed on: {fault}") from None


def _choice(select: Sequence[str], exclude: Sequence[str]) -> list[str]:
    return [*(f"--select={rule}" for rule in select), *(f"--exclude={rule}" for rule in exclude)]


def _answer(said: Said, kind: str, detail: bool) -> Answer:
    try:
        return answer_of(said, kind, detail=detail)
    except VerbFailedError as fault:
        raise ToolError(str(fault)) from None
