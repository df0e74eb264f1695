"""A job's command line as it was understood: launcher, interpreter, script, arguments, config files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Record

LauncherKind = Literal[
    "python",  # python script.py, python -m module, python -c text
    "torchrun",
    "accelerate",
    "deepspeed",
    "trl",
    "console-script",  # an installed Python entry point other than the launchers above
    "shell",  # bash run.sh and the like: what it starts is only known once it runs
    "other",  # a program that is not known to start Python
]


class CommandFile(Record):
    """A configuration file named on the command line."""

    path: str  # absolute
    index: int  # its word in argv
    flag: str | None = None  # the option that names it; None when it stands alone
    owner: Literal["script", "launcher"] = "script"


class JobCommand(Record):
    """One command line. Indexes count words of `argv` from 0 and are None where a word is not on it."""

    argv: list[str]
    cwd: str
    launcher: LauncherKind
    wrappers: list[str] = Field(default_factory=list)  # programs in front of the launcher: env, srun, ...
    launcher_index: int = 0
    launcher_path: str | None = None  # the program file; None when it was not found
    interpreter: str | None = None  # the Python that runs the job, as far as the command line tells
    interpreter_flags: list[str] = Field(default_factory=list)
    script: str | None = None  # absolute path of the user's script
    script_index: int | None = None
    module: str | None = None  # python -m MODULE
    module_index: int | None = None
    args_index: int | None = None  # where the script's own arguments begin
    script_args: list[str] = Field(default_factory=list)
    config_files: list[CommandFile] = Field(default_factory=list)
    shell_script: str | None = None
    inner_line: str | None = None  # the launcher line found inside the shell script
    processes_per_node: int | None = None  # None: decided at run time
    nodes: int | None = None
    obstacles: list[str] = Field(default_factory=list)  # why the observer cannot get into this command

    def name(self) -> str:
        """A short name for run folders."""
        from pathlib import PurePath

        if self.script:
            return PurePath(self.script).stem
        if self.module:
            return self.module.rsplit(".", 1)[-1]
        if self.shell_script:
            return PurePath(self.shell_script).stem
        return PurePath(self.argv[self.launcher_index]).name if self.argv else "job"
