"""Edits around the statement a call stands in: insert before or after it, delete it, wrap it.

The work is planned on the parsed file (`StatementPlan`), written in `snippets.py` and done by `edit.py`.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from autotune.apply.locate import EditRefused, Source, code
from autotune.apply.snippets import HOLE, Hoist, LinePlan, parse_snippet

Line = cst.SimpleStatementLine | cst.SimpleStatementSuite
Compound = cst.BaseCompoundStatement

# Methods of a module or optimizer that give back the same object; `train` of a trainer does not.
_SAME_OBJECT = frozenset(
    {"to", "cuda", "cpu", "eval", "half", "float", "bfloat16", "double", "requires_grad_"}
)
_COMPREHENSIONS = (cst.GeneratorExp, cst.ListComp, cst.SetComp, cst.DictComp)


@dataclass(frozen=True)
class Owner:
    """The statement that evaluates a call."""

    line: Line | None  # the simple statement line, or None when the call stands in a compound header
    small: cst.BaseSmallStatement | None
    compound: Compound | None  # the compound statement whose header holds the call
    barrier: str | None  # why "before" and "after" the statement are not before and after the call
    path: tuple[cst.CSTNode, ...]  # from the call up to the statement


@dataclass
class CompoundPlan:
    """What happens to one compound statement because of a call in its header."""

    before: list[str] = field(default_factory=list)
    body_first: list[str] = field(default_factory=list)
    drop_item: cst.WithItem | None = None
    wrap: list[str] = field(default_factory=list)


@dataclass
class StatementPlan:
    """All statement edits of a file by node."""

    smalls: dict[cst.BaseSmallStatement, LinePlan] = field(default_factory=dict)
    compounds: dict[Compound, CompoundPlan] = field(default_factory=dict)

    def small(self, node: cst.BaseSmallStatement) -> LinePlan:
        """The plan of a small statement, made on first use."""
        return self.smalls.setdefault(node, LinePlan())

    def compound(self, node: Compound) -> CompoundPlan:
        """The plan of a compound statement, made on first use."""
        return self.compounds.setdefault(node, CompoundPlan())


def owner_of(source: Source, call: cst.Call) -> Owner:
    """The statement that holds `call`."""
    barrier: str | None = None
    path: list[cst.CSTNode] = [call]
    node: cst.CSTNode = call
    while True:
        parent = source.parents[node]
        if isinstance(parent, cst.Lambda):
            barrier = "the call stands in a lambda, which runs elsewhere"
        elif isinstance(parent, _COMPREHENSIONS):
            barrier = "the call stands in a comprehension, which runs it many times"
        elif isinstance(parent, cst.Decorator):
            barrier = "the call stands in a decorator"
        elif isinstance(parent, cst.Param):
            barrier = "the call is the default of a parameter"
        if isinstance(parent, cst.BaseSmallStatement):
            line = source.parents[parent]
            assert isinstance(line, (cst.SimpleStatementLine, cst.SimpleStatementSuite))
            return Owner(line, parent, None, barrier, (*path, parent))
        if isinstance(parent, cst.BaseCompoundStatement):
            return Owner(None, None, parent, barrier, (*path, parent))
        path.append(parent)
        node = parent


def plan_insert_before(source: Source, plan: StatementPlan, owner: Owner, snippet: str) -> None:
    """Put `snippet` before the statement. Raises EditRefused where there is no place before the call."""
    _refuse_barrier(owner)
    parse_snippet(snippet, source.module)
    if owner.small is not None:
        if not _stands_before(source, owner, snippet):
            _add(plan.small(owner.small).before, snippet)
        return
    compound = owner.compound
    assert compound is not None
    if isinstance(compound, cst.While):
        raise EditRefused("the call stands in the condition of a while loop")
    if isinstance(compound, cst.If) and isinstance(source.parents[compound], cst.If):
        raise EditRefused("the call stands in an elif")
    if not _stands_before(source, owner, snippet):
        _add(plan.compound(compound).before, snippet)


def plan_insert_after(source: Source, plan: StatementPlan, owner: Owner, template: str) -> None:
    """Put `template` after the statement, with `{target}` = the name the call's value got."""
    _refuse_barrier(owner)
    parse_snippet(template.replace("{target}", "target"), source.module)
    if owner.small is not None:
        hoist = None
        target = ""
        if "{target}" in template:
            target, hoist = _target(source, owner)
        snippet = template.replace("{target}", target)
        if target and _may_be_none(owner):
            snippet = f"if {target} is not None:\n" + textwrap.indent(snippet.strip("\n"), "    ")
        if not _stands_after(source, owner, snippet):
            entry = plan.small(owner.small)
            if hoist and entry.hoist and hoist != entry.hoist:
                raise EditRefused("two calls of one statement would both need a line of their own")
            entry.hoist = hoist or entry.hoist
            _add(entry.after, snippet)
        elif isinstance(owner.small, cst.Return) and hoist is None:
            raise EditRefused("nothing runs after a return")
        return
    compound = owner.compound
    assert compound is not None
    item = next((n for n in owner.path if isinstance(n, cst.WithItem)), None)
    if not isinstance(compound, cst.With) or item is None:
        raise EditRefused(f"the call stands in the head of a {_keyword(compound)} statement")
    if "{target}" in template:
        if item.asname is None or item.item is not owner.path[0]:
            raise EditRefused("the with statement gives the object no name")
        template = template.replace("{target}", code(item.asname.name))
    if not _matches_run(list(compound.body.body), 0, template):
        _add(plan.compound(compound).body_first, template)


def plan_delete(plan: StatementPlan, owner: Owner) -> None:
    """Take the statement away. Raises EditRefused when its value is used."""
    call = owner.path[0]
    _refuse_barrier(owner)
    if owner.small is not None:
        if not isinstance(owner.small, cst.Expr) or _strip_await(owner.small.value) is not call:
            raise EditRefused(f"the value of the call is used: {code(owner.small)}")
        entry = plan.small(owner.small)
        entry.delete = True
        assert isinstance(call, cst.Call)
        if isinstance(call.func, cst.Attribute) and _has_call(call.func.value):
            entry.keep_receiver = call.func.value
        return
    compound = owner.compound
    item = next((n for n in owner.path if isinstance(n, cst.WithItem)), None)
    if not isinstance(compound, cst.With) or item is None or item.item is not call:
        assert compound is not None
        raise EditRefused(f"the call stands in the head of a {_keyword(compound)} statement")
    if item.asname is not None:
        raise EditRefused(f"the with statement names the object: {code(item.asname.name)}")
    plan.compound(compound).drop_item = item


def plan_wrap(source: Source, plan: StatementPlan, owner: Owner, template: str) -> None:
    """Put the whole statement into `template` at `{statement}`."""
    _refuse_barrier(owner)
    parse_snippet(template.replace("{statement}", HOLE), source.module)
    if owner.small is None or not isinstance(owner.line, cst.SimpleStatementLine):
        raise EditRefused("the call does not stand in a plain statement of its own line")
    if isinstance(owner.small, (cst.Return, cst.Assign, cst.AnnAssign, cst.AugAssign)):
        raise EditRefused("the statement gives a value that later code needs")
    if not already_wrapped(source, owner.line, template):
        _add(plan.small(owner.small).wrap, template)


def _add(snippets: list[str], snippet: str) -> None:
    if snippet not in snippets:
        snippets.append(snippet)


def _refuse_barrier(owner: Owner) -> None:
    if owner.barrier is not None:
        raise EditRefused(owner.barrier)


def _keyword(node: Compound) -> str:
    names: Mapping[type[cst.CSTNode], str] = {
        cst.For: "for",
        cst.While: "while",
        cst.If: "if",
        cst.With: "with",
        cst.FunctionDef: "def",
        cst.ClassDef: "class",
    }
    return names.get(type(node), "compound")


def _strip_await(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.expression if isinstance(node, cst.Await) else node


def _has_call(node: cst.CSTNode) -> bool:
    import libcst.matchers as m

    return bool(m.findall(node, m.Call()))


def _target(source: Source, owner: Owner) -> tuple[str, Hoist | None]:
    """Source text of the name the call's value gets, and how it gets one where the script gives it none."""
    path = owner.path
    i = 0
    while i + 2 < len(path):
        holder, outer = path[i + 1], path[i + 2]
        if (
            isinstance(holder, cst.Attribute)
            and holder.value is path[i]
            and holder.attr.value in _SAME_OBJECT
            and isinstance(outer, cst.Call)
            and outer.func is holder
        ):
            i += 2
        else:
            break
    value, parent = path[i], path[i + 1]
    if isinstance(parent, cst.NamedExpr):
        return code(parent.target), None
    if isinstance(parent, cst.IfExp) and parent.test is not value:
        i += 1
        value, parent = path[i], path[i + 1]
    if isinstance(parent, cst.Assign) and parent.value is value:
        return _plain_target(parent.targets[0].target), None
    if isinstance(parent, cst.AnnAssign) and parent.value is value:
        return _plain_target(parent.target), None
    layers = _layers_around(path[i:])
    if layers is not None and (layers or isinstance(parent, cst.Return)):
        name = _free_name(source, "autotune_value")
        return name, Hoist(name, layers)
    if isinstance(parent, cst.Element) and i + 3 < len(path) and isinstance(path[i + 3], cst.Assign):
        return _tuple_target(parent, path[i + 2], path[i + 3]), None
    if isinstance(parent, cst.Expr):
        raise EditRefused("the value of the call is not kept under a name; write NAME = CALL first")
    raise EditRefused(f"the value of the call is handed on without a name: {code(owner.path[-1])}")


def _layers_around(path: Sequence[cst.CSTNode]) -> int | None:
    """Layers between the value of a statement and the call it begins with; None where it begins otherwise.

    What such a statement does before the call is nothing, so the call can have a line of its own before it.
    """
    for layers, (inner, outer) in enumerate(itertools.pairwise(path)):
        first: cst.CSTNode | None
        if isinstance(outer, cst.Call):
            first = outer.func
        elif isinstance(
            outer,
            (cst.Attribute, cst.Subscript, cst.Expr, cst.Return, cst.Assign, cst.AnnAssign),
        ):
            first = outer.value
        elif isinstance(outer, cst.Await):
            first = outer.expression
        else:
            return None
        if first is not inner:
            return None
        if isinstance(outer, cst.BaseSmallStatement):
            return layers
    return None


def _may_be_none(owner: Owner) -> bool:
    """`x = CALL if flag else None`: with another flag there is nothing to work on."""
    for inner, outer in itertools.pairwise(owner.path):
        if isinstance(outer, cst.IfExp) and outer.test is not inner:
            other = outer.orelse if outer.body is inner else outer.body
            return isinstance(other, cst.Name) and other.value == "None"
    return False


def _tuple_target(element: cst.Element, values: cst.CSTNode, assign: cst.CSTNode) -> str:
    targets = cst.ensure_type(assign, cst.Assign).targets[0].target
    if isinstance(values, (cst.Tuple, cst.List)) and isinstance(targets, (cst.Tuple, cst.List)):
        starred = [e for e in (*values.elements, *targets.elements) if isinstance(e, cst.StarredElement)]
        if not starred and len(values.elements) == len(targets.elements):
            return _plain_target(targets.elements[values.elements.index(element)].value)
    raise EditRefused("the assignment does not show which name gets the value")


def _plain_target(node: cst.BaseExpression) -> str:
    if isinstance(node, (cst.Name, cst.Attribute)):
        return code(node)
    if isinstance(node, cst.Subscript) and not _has_call(node):
        return code(node)
    raise EditRefused(f"the value is assigned to {code(node)}, which is not one plain name")


def _free_name(source: Source, name: str) -> str:
    while name in source.text:
        name += "_"
    return name


def _block(source: Source, owner: Owner) -> tuple[list[cst.CSTNode], int] | None:
    """Statements of the block the owner stands in, and its index there."""
    node: cst.CSTNode | None = owner.line if owner.small is not None else owner.compound
    if node is None or isinstance(node, cst.SimpleStatementSuite):
        return None
    parent = source.parents[node]
    if not isinstance(parent, (cst.IndentedBlock, cst.Module)):
        return None
    body: list[cst.CSTNode] = list(parent.body)
    return body, body.index(node)


def _matches_run(body: Sequence[cst.CSTNode], start: int, snippet: str) -> bool:
    """Whether the statements from `start` on begin with the snippet."""
    wanted = [
        code(s.with_changes(leading_lines=[])) for s in cst.parse_module(snippet.strip("\n") + "\n").body
    ]
    there = [code(s.with_changes(leading_lines=[])) for s in body[start : start + len(wanted)]]
    return start >= 0 and wanted == there


def _stands_after(source: Source, owner: Owner, snippet: str) -> bool:
    block = _block(source, owner)
    if block is None:
        return False
    body, at = block
    # Another edit's snippet may stand in between: look a few statements ahead.
    return any(_matches_run(body, at + 1 + skip, snippet) for skip in range(6))


def _stands_before(source: Source, owner: Owner, snippet: str) -> bool:
    block = _block(source, owner)
    if block is None:
        return False
    body, at = block
    size = len(cst.parse_module(snippet.strip("\n") + "\n").body)
    return any(_matches_run(body, at - size - skip, snippet) for skip in range(6))


def already_wrapped(source: Source, line: cst.BaseStatement, template: str) -> bool:
    """Whether the statement stands inside the template already."""
    import ast

    shape = ast.parse(template.replace("{statement}", HOLE).strip("\n")).body
    node: cst.CSTNode = line
    while not isinstance(source.parents[node], cst.Module):
        node = source.parents[node]
        if isinstance(node, cst.BaseCompoundStatement) and len(shape) == 1:
            text = code(node.with_changes(leading_lines=[]))
            there = ast.parse(text).body[0]
            if type(there) is type(shape[0]) and _head(there) == _head(shape[0]):
                return True
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            return False
    return False


def _head(node: object) -> str:
    """A compound statement without its body."""
    import ast

    assert isinstance(node, ast.AST)
    fields = {k: v for k, v in ast.iter_fields(node) if k not in ("body", "orelse", "type_comment")}
    return repr({k: ast.dump(v) if isinstance(v, ast.AST) else repr(v) for k, v in fields.items()})
