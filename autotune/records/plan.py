"""What will be changed and what was changed: plan groups, patched jobs, deliverables."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.records.base import Document, Record
from autotune.records.facts import FactValue
from autotune.records.findings import FixStep
from autotune.records.terms import Applicability, Surface, Tier


class Member(Record):
    """One finding's part in a group: the fix that fits this job."""

    rule: str
    title: str
    fix: str
    surface: Surface
    applicability: Applicability
    steps: list[FixStep]
    sites: list[str] = Field(default_factory=list)  # ids of the sites the steps edit
    places: list[str] = Field(default_factory=list)  # file:line of the same
    passed_over: list[str] = Field(default_factory=list)  # why preferred surfaces were not used
    parity: Tier | None = None
    caution: str = ""


class PlanGroup(Record):
    """Changes that are tried, verified and kept as one."""

    id: str
    rules: list[str]
    members: list[Member]
    ratio_upper: float | None = None
    admissible: bool
    reason: str = ""  # why it is refused; empty when admissible
    applicability: Applicability = "safe"
    parity: Tier | None = None
    after: list[str] = Field(default_factory=list)  # groups that come first when they are kept
    predicted: dict[str, FactValue] = Field(default_factory=dict)  # facts the group is expected to change
    packages: list[str] = Field(default_factory=list)

    @property
    def surfaces(self) -> list[Surface]:
        """Surfaces the group touches, in member order."""
        return list(dict.fromkeys(member.surface for member in self.members))


class Conflict(Record):
    """Two rules that cannot both be applied."""

    rules: list[str]
    reason: str


class Advice(Record):
    """A finding that no edit here can mend, and why."""

    rule: str
    title: str
    reasons: list[str]


class Plan(Document):
    """Everything `apply` can do about a diagnosis, best group first."""

    run: str
    groups: list[PlanGroup]
    conflicts: list[Conflict] = Field(default_factory=list)
    advice: list[Advice] = Field(default_factory=list)


class EditedFile(Record):
    """One file of the job that is not the user's original in the patched arm."""

    path: str  # where the file stands, or would stand, in the user's project (absolute)
    shadow: str  # the edited copy in the run folder
    kind: Literal["source", "config", "shim"]
    sha256_before: str | None  # None: the file is new
    sha256_after: str
    rules: list[str] = Field(default_factory=list)


class InstalledPackage(Record):
    """One distribution in the overlay of a run."""

    name: str
    version: str
    imports: list[str] = Field(default_factory=list)  # modules whose import was checked


class PatchedJob(Document):
    """One arm of a trial: the job in its shadow tree, with the edits of its groups (none: the baseline)."""

    label: str
    groups: list[str]
    rules: list[str]
    parity: Tier | None = None  # the widest tier of the changes; absent where they do not say
    command: list[str]
    cwd: str
    env: dict[str, str | None] = Field(default_factory=dict)  # what the arm sets or unsets
    python_path: list[str] = Field(default_factory=list)  # folders put first on the job's import path
    original_command: list[str]
    original_cwd: str
    tree: str  # root of the shadow tree; <tree>/<absolute path> mirrors <absolute path>
    files: list[EditedFile] = Field(default_factory=list)
    fingerprint: str = ""
    fingerprint_files: list[str] = Field(default_factory=list)
    packages: list[InstalledPackage] = Field(default_factory=list)
    protected_roots: list[str] = Field(default_factory=list)  # the user's own folders behind the tree's links
    user_roots: list[str] = Field(
        default_factory=list
    )  # folders of the tree whose code may be edited further
    notes: list[str] = Field(default_factory=list)


class ManifestFile(Record):
    """One file a delivery wrote, with what is needed to take it away again."""

    path: str
    action: Literal["created", "changed"]
    original: str | None = None  # the user's file it was made from
    sha256_before: str | None = None
    sha256_after: str
    backup: str | None = None  # copy of the text before, relative to the run
    rules: list[str] = Field(default_factory=list)


class Proof(Record):
    """Whether what is shown or written was measured as it stands."""

    proven: bool
    sentence: str
    untried: list[str] = Field(default_factory=list)  # rules of it that no trial of the run contained


class Manifest(Document):
    """What `apply` delivers; `files` is empty until it is written."""

    run: str
    mode: Literal["sibling", "patch", "in-place", "command"]
    rules: list[str]
    surfaces: list[Surface]
    files: list[ManifestFile] = Field(default_factory=list)
    diff: str  # path of the unified diff, relative to the run
    launch_command: str  # one line for a shell
    packages: list[InstalledPackage] = Field(default_factory=list)
    written: bool = False
    steps_by_hand: list[str] = Field(default_factory=list)
    left_out: list[Advice] = Field(default_factory=list)  # findings that nothing here changes, and why
    proof: Proof | None = None
