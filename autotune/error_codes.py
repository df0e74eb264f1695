"""Every error code with its page: what it means and what to do. `autotune explain CODE` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import Exit


@dataclass(frozen=True)
class ErrorPage:
    """What a user should know about one code."""

    exit_code: Exit
    means: str
    todo: str


EXIT_MEANINGS: dict[Exit, str] = {
    Exit.DONE: "Done, or nothing found.",
    Exit.FINDINGS: "There are findings at or above --fail-on SEVERITY. The answer was printed as always.",
    Exit.BAD_INPUT: "Bad input: usage, rules, traces, records or configuration. Nothing was started.",
    Exit.JOB_FAILED: "The training job failed or could not start; its output is in train.log of the launch.",
    Exit.NOT_OBSERVED: "The observer never attached, or saw no training step.",
    Exit.SLOWER_OR_BROKEN: "verify: the patched job is slower, crashes, or trains differently.",
    Exit.UNDECIDED: "verify, optimize: undecided; more pairs, minutes or a quieter machine may decide it.",
    Exit.FILES: "A folder is read-only, a disk is full, or a file cannot be read.",
    Exit.BUG: "A bug in autotune; the traceback is in the file that the message names.",
    Exit.INTERRUPTED: "You pressed Ctrl-C; what was recorded until then is kept.",
}

_IN, _JOB, _SEEN, _FILES = Exit.BAD_INPUT, Exit.JOB_FAILED, Exit.NOT_OBSERVED, Exit.FILES

CODES: dict[str, ErrorPage] = {
    # the command line and the configuration
    "bad-input": ErrorPage(
        _IN, "The input does not fit what was asked.", "Read the line: it names the place."
    ),
    "usage": ErrorPage(_IN, "The command line does not fit the verb.", "Compare with autotune VERB --help."),
    "command-unknown": ErrorPage(_IN, "There is no verb of this name.", "autotune --help lists the verbs."),
    "option-unknown": ErrorPage(
        _IN,
        "The verb has no such option.",
        "autotune VERB --help lists its options. Options of the training command follow after --.",
    ),
    "value-refused": ErrorPage(
        _IN,
        "A value on the command line is out of range or of the wrong kind.",
        "The line names the option and what it takes.",
    ),
    "argument-missing": ErrorPage(_IN, "The verb needs one more argument.", "autotune VERB --help shows it."),
    "command-missing": ErrorPage(
        _IN,
        "No training command was given.",
        "Put it after --, for example: autotune analyze -- python train.py",
    ),
    "code-unknown": ErrorPage(
        _IN, "There is no error or exit code of this name.", "autotune explain without a code lists all."
    ),
    "schema-unknown": ErrorPage(
        _IN, "There is no JSON answer of this name.", "autotune schema without a name lists all."
    ),
    "config-broken": ErrorPage(
        _IN, "The configuration file is no TOML or no UTF-8 text.", "Mend the line that is named."
    ),
    "config-key-unknown": ErrorPage(
        _IN,
        "The configuration file holds a key that autotune does not know.",
        "autotune config show lists the keys; docs/configuration.md explains them.",
    ),
    "config-value-refused": ErrorPage(
        _IN,
        "A value of the configuration file is of the wrong kind.",
        "The line names the file, the line and what the key takes.",
    ),
    "extra-missing": ErrorPage(
        _IN,
        "The export needs a package that is not installed.",
        "Install the extra that the line names, for example: pip install 'autotune-training[mlflow]'",
    ),
    "export-refused": ErrorPage(
        _IN,
        "The tracking service's own client refused the export.",
        "The line holds the client's message; check its address and login with its own command.",
    ),
    # traces
    "trace-missing": ErrorPage(_IN, "There is no trace file at this path.", "Check the path."),
    "trace-truncated": ErrorPage(
        _IN,
        "The trace ends early or its compressed data is damaged.",
        "Copy the file again, or record the trace again; the byte where it breaks off is named.",
    ),
    "trace-foreign": ErrorPage(
        _IN,
        "The file is not a torch.profiler (Kineto) trace.",
        "Pass the JSON or JSON.GZ that prof.export_chrome_trace() writes.",
    ),
    "trace-broken": ErrorPage(
        _IN,
        "The trace is no valid JSON at the byte that is named.",
        "Record the trace again; a job that was killed while writing leaves half a file.",
    ),
    "trace-empty": ErrorPage(
        _IN, "The trace holds no events.", "Record at least one step with the profiler on."
    ),
    "traces-mixed": ErrorPage(
        _IN,
        "The traces are not one file for each rank of one job.",
        "Give one file of each rank; of several recordings of a rank take one. autotune diff compares two.",
    ),
    "table-broken": ErrorPage(
        _IN, "A table of kernel names could not be read.", "Reinstall autotune-training."
    ),
    # runs and records
    "run-missing": ErrorPage(
        _IN,
        "There is no run in the runs folder yet.",
        "Start with: autotune analyze -- COMMAND, or name another folder with --runs-dir.",
    ),
    "run-unknown": ErrorPage(
        _IN, "No run has this name.", "autotune runs lists them; a unique part is enough."
    ),
    "run-in-use": ErrorPage(
        _IN,
        "Another optimize or verify works in this run folder right now.",
        "Wait until it has ended; a killed one lets go at once.",
    ),
    "run-moved": ErrorPage(
        _IN,
        "The patched copy of the run is not where it was made: the run was moved, or part of it was deleted.",
        "Move it back, or let optimize make it again.",
    ),
    "run-ambiguous": ErrorPage(_IN, "The name fits several runs.", "Give more of the name, or 'latest'."),
    "run-without-job": ErrorPage(
        _IN,
        "The run was made from saved traces, so there is no job to start.",
        "Watch the job itself: autotune analyze -- COMMAND",
    ),
    "run-without-trace": ErrorPage(_IN, "The run holds no trace.", "Analyze the job, or name a trace file."),
    "record-missing": ErrorPage(
        _IN,
        "The run does not hold this record yet.",
        "Run the step that makes it: analyze writes the diagnosis, apply the plan, verify the verdict.",
    ),
    "record-broken": ErrorPage(
        _IN,
        "A record is damaged or is no record of this kind.",
        "Make it again: autotune analyze --from RUN derives the diagnosis from what was recorded.",
    ),
    "record-version": ErrorPage(
        _IN,
        "The record was written by another version of autotune.",
        "Use the version that wrote it (run.json names it), or make the record again.",
    ),
    # rules
    "rules-broken": ErrorPage(
        _IN, "Rule files have errors; all of them are listed.", "autotune rules lint FOLDER"
    ),
    "rules-folder": ErrorPage(
        _IN,
        "The rules folder does not exist or holds no rule.",
        "A rule lies at <folder>/<category>/<name>.yaml.",
    ),
    "rule-unknown": ErrorPage(_IN, "There is no rule of this id.", "autotune rules list shows all."),
    "rule-exists": ErrorPage(_IN, "A rule of this id exists already.", "Edit it, or choose another id."),
    "rule-id": ErrorPage(_IN, "This is no rule id.", "Write category/kebab-name, such as data/slow-images."),
    "rule-text": ErrorPage(
        _IN, "A text of a rule could not be rendered.", "Mend the rule: autotune rules lint"
    ),
    "rule-examples": ErrorPage(
        _IN,
        "The rule files hold no example, so nothing was tested.",
        "Add examples; every rule needs a match and a no-match.",
    ),
    "pattern-matches-nothing": ErrorPage(
        _IN,
        "A --select, --exclude or disable pattern fits no rule.",
        "Patterns are rule ids or shell patterns such as 'kernels/*'; autotune rules list shows the ids.",
    ),
    # apply
    "nothing-to-apply": ErrorPage(
        _IN,
        "No change can be applied; the line says why.",
        "autotune report shows what was found; --unsafe admits changes that want a person's review.",
    ),
    "nothing-applied": ErrorPage(
        _IN,
        "Nothing of this run is applied, so there is nothing to take back.",
        "autotune runs lists the runs.",
    ),
    "already-applied": ErrorPage(
        _IN, "The run is applied already.", "autotune apply --revert takes it back."
    ),
    "file-changed": ErrorPage(
        _IN, "A file is not what it was when the run saw it.", "Analyze the job again."
    ),
    "file-in-the-way": ErrorPage(
        _IN,
        "A file of this name exists already and is not overwritten.",
        "Move it away or choose another name.",
    ),
    "tree-not-clean": ErrorPage(
        _IN,
        "--in-place edits only files in a clean git tree.",
        "Commit or stash your changes first, or use --write, which makes a copy.",
    ),
    "patch-refuted": ErrorPage(
        _IN,
        "verify has shown exactly this patch to be slower or to change training.",
        "Leave changes out with --exclude RULE, let autotune optimize try each, or insist with --unsafe.",
    ),
    "change-impossible": ErrorPage(_IN, "A change no longer fits the script.", "Analyze the job again."),
    "package-refused": ErrorPage(
        _IN,
        "The package would replace what the job itself runs with.",
        "Install it yourself in an environment of its own and analyze the job there.",
    ),
    "package-failed": ErrorPage(
        _IN,
        "A package could not be installed into the run's overlay.",
        "Read pip's line; without a network give a folder of wheels with --wheelhouse.",
    ),
    "interpreter-silent": ErrorPage(
        _IN, "The job's Python did not answer a question.", "autotune doctor -- COMMAND checks it."
    ),
    "template-broken": ErrorPage(_IN, "A template did not give valid Python.", "Reinstall, and report it."),
    "script-incomplete": ErrorPage(
        _IN,
        "The script template lacks something it cannot guess.",
        "The line names what to set; docs/fsdp2-script.md lists what the template takes.",
    ),
    # the job
    "job-failed": ErrorPage(_JOB, "The training job failed.", "Its output is in train.log of the launch."),
    "program-missing": ErrorPage(
        _JOB, "There is no such program.", "Check the spelling and the environment."
    ),
    "script-missing": ErrorPage(_JOB, "There is no such script.", "Check the path and the working folder."),
    "job-not-started": ErrorPage(
        _JOB, "The operating system could not start the command.", "Check that the file may be executed."
    ),
    "whole-refuted": ErrorPage(
        _JOB,
        "Changes that were proven one by one do not hold up together.",
        "Apply single changes with --select.",
    ),
    "not-observed": ErrorPage(
        _SEEN,
        "The observer saw no training step.",
        "Is this the command that trains? autotune doctor -- COMMAND checks whether it can be observed.",
    ),
    "launcher-unsupported": ErrorPage(
        _SEEN,
        "This way of starting a job cannot be observed.",
        "Start the job with python, torchrun, accelerate or deepspeed on this machine.",
    ),
    "too-few-steps": ErrorPage(_SEEN, "The job ended after too few training steps.", "Let it train longer."),
    # the rest
    "files": ErrorPage(
        _FILES,
        "A file or folder cannot be read or written.",
        "Check the folder's rights and the free space; --runs-dir chooses another folder.",
    ),
    "installation-incomplete": ErrorPage(
        _FILES, "The installation lacks a folder.", "Reinstall autotune-training."
    ),
    "bug": ErrorPage(Exit.BUG, "A bug in autotune.", "Please report it with the file that the line names."),
    "interrupted": ErrorPage(
        Exit.INTERRUPTED,
        "You pressed Ctrl-C.",
        "What was recorded is kept; autotune optimize --resume RUN goes on.",
    ),
}
