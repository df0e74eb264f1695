"""The edit primitives a rule's fix is made of. Texts may hold templates over facts; `{original}` and
`{target}` are filled by the editor, not here."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from autotune.records.base import Record
from autotune.records.sites import SiteKind
from autotune.records.terms import Surface


class AtSite(Record):
    """A step at a call the observer recorded."""

    at: SiteKind
    callees: list[str] = Field(default_factory=list, description="regular expressions the callee must match")
    which: Literal["all", "first", "last"] = "all"
    optional: bool = Field(default=False, description="a place that is not there is no reason to refuse")


class SetKeyword(AtSite):
    """Give or change keywords of the call; values are Python expressions."""

    action: Literal["set_keyword"]
    keywords: dict[str, str] = Field(default_factory=dict)
    remove: list[str] = Field(default_factory=list)
    only_if_absent: bool = False


class WrapArgument(AtSite):
    """Replace one argument by an expression that contains it."""

    action: Literal["wrap_argument"]
    argument: str
    position: int | None = None
    template: str
    missing: str | None = Field(default=None, description="expression when the argument was not given")


class WrapCall(AtSite):
    """Replace the whole call by an expression that contains it."""

    action: Literal["wrap_call"]
    template: str


class WrapStatement(AtSite):
    """Replace the call's statement by lines that contain it."""

    action: Literal["wrap_statement"]
    template: str


class WrapBlock(AtSite):
    """Replace what stands beside training around the call, a statement or a whole block, by lines that
    contain it. Places where later lines need it are left as they are, as long as one can be changed."""

    action: Literal["wrap_block"]
    template: str
    every_step: bool = Field(default=False, description="only calls made at least once per observed step")


class DeleteStatement(AtSite):
    """Take the call's statement away; only when its value is unused."""

    action: Literal["delete_statement"]


class InsertAfter(AtSite):
    """Put lines after the call's statement."""

    action: Literal["insert_after"]
    template: str


class InsertBefore(AtSite):
    """Put lines before the call's statement."""

    action: Literal["insert_before"]
    template: str


class UseShim(Record):
    """Write a small module beside the copy and import it."""

    action: Literal["use_shim"]
    template: str
    module: str
    arguments: dict[str, str | int | float | bool] = Field(default_factory=dict)


class SetFlag(Record):
    """Set a flag on the job's own command line."""

    action: Literal["set_flag"]
    name: str
    value: str


class RemoveFlag(Record):
    """Take a flag off the job's own command line."""

    action: Literal["remove_flag"]
    name: str


class SetCount(Record):
    """Change a number of the job at the one place where it is written: a flag, a key, a literal of the code.

    `names` is a regular expression for the whole name of the setting; `at` and `argument` name a call that
    takes the number instead. Refused unless exactly one place holds the number `was`.
    """

    action: Literal["set_count"]
    names: str = ""
    at: SiteKind | None = None
    callees: list[str] = Field(default_factory=list, description="regular expressions the callee must match")
    argument: str | None = None
    was: str | int
    value: str | int


class SetKey(Record):
    """Set a key in a copy of the job's configuration file."""

    action: Literal["set_key"]
    key: str
    value: str | int | float | bool


class SetEnv(Record):
    """Set an environment variable for the job; null unsets it."""

    action: Literal["set_env"]
    name: str
    value: str | None


class Install(Record):
    """Install packages into the overlay of the run."""

    action: Literal["install"]
    packages: list[str]


class Render(Record):
    """Write a whole training script from a template."""

    action: Literal["render"]
    template: str


Step = Annotated[
    SetKeyword
    | WrapArgument
    | WrapCall
    | WrapStatement
    | WrapBlock
    | DeleteStatement
    | InsertAfter
    | InsertBefore
    | UseShim
    | SetFlag
    | RemoveFlag
    | SetKey
    | SetCount
    | SetEnv
    | Install
    | Render,
    Field(discriminator="action"),
]
STEPS: tuple[type[Record], ...] = get_args(get_args(Step)[0])

# Steps a surface may hold; call-site steps may accompany a shim, since a shim is used somewhere.
_SITE_ACTIONS = (
    "set_keyword",
    "wrap_argument",
    "wrap_call",
    "wrap_statement",
    "wrap_block",
    "delete_statement",
    "insert_after",
    "insert_before",
)
ALLOWED_ACTIONS: dict[Surface, tuple[str, ...]] = {
    "call-site": (*_SITE_ACTIONS, "set_count"),
    "shim": ("use_shim", *_SITE_ACTIONS),
    "flag": ("set_flag", "remove_flag", "set_count"),
    "config": ("set_key",),
    "env-var": ("set_env",),
    "package": ("install",),
    "script": ("render",),
}
