"""The statement or block around a call that does nothing but stand beside training: what may run less often.

A `with` or `for` around the call belongs to the block as long as it trains nothing and nothing after it needs
what it gives. A condition around all of it stays outside: how often it is met is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import libcst as cst
import libcst.matchers as m

from autotune.apply.locate import EditRefused, Source, code
from autotune.apply.snippets import HOLE, parse_snippet
from autotune.apply.statements import StatementPlan, already_wrapped, owner_of

Node = TypeVar("Node", bound=cst.CSTNode)
Block = cst.SimpleStatementLine | cst.BaseCompoundStatement

_TRAINS = frozenset({"backward", "step", "zero_grad", "training_step", "no_sync"})
_SCOPES = (cst.FunctionDef, cst.ClassDef, cst.Module)
_COMPREHENSIONS = (cst.GeneratorExp, cst.ListComp, cst.SetComp, cst.DictComp)
_GROW = frozenset({"append", "extend", "insert", "add", "update", "setdefault"})
_LEAVES: dict[type[cst.CSTNode], str] = {
    cst.Return: "it returns",
    cst.Raise: "it raises",
    cst.Assert: "it asserts",
    cst.Del: "it deletes names",
    cst.Global: "it sets a global name",
    cst.Nonlocal: "it sets a name of an outer function",
    cst.Yield: "it yields",
    cst.Await: "it awaits",
}


def plan_wrap(
    source: Source, plan: StatementPlan, call: cst.Call, template: str, training: Iterable[int]
) -> None:
    """Put the block around the call into `template` at `{statement}`. Raises EditRefused."""
    parse_snippet(template.replace("{statement}", HOLE), source.module)
    block = block_of(source, call, training)
    if already_wrapped(source, block, template):
        return
    if isinstance(block, cst.BaseCompoundStatement):
        wraps = plan.compound(block).wrap
    elif len(block.body) == 1:
        wraps = plan.small(block.body[0]).wrap
    else:
        raise EditRefused("the call shares its line with other statements")
    if template not in wraps:
        wraps.append(template)


def block_of(source: Source, call: cst.Call, training: Iterable[int] = ()) -> Block:
    """The widest block around the call that may run less often; `training`: lines that train.

    Raises EditRefused when even the call's own statement is needed every time.
    """
    owner = owner_of(source, call)
    if owner.barrier is not None:
        raise EditRefused(owner.barrier)
    first = owner.line if owner.small is not None else owner.compound
    if isinstance(first, (cst.If, cst.While, *_SCOPES)) or first is None:
        raise EditRefused("the call decides what runs")
    if not isinstance(first, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
        raise EditRefused("the call does not stand in a plain statement of its own line")
    lines = set(training)
    found: Block | None = None
    reason = ""
    for block in _outwards(source, first, lines):
        fault = _fault(source, block)
        if not fault:
            found = block
        reason = reason or fault
    if found is None:
        raise EditRefused(f"the statement is needed every time: {reason or 'it trains'}")
    return found


def _outwards(source: Source, first: Block, training: set[int]) -> Iterable[Block]:
    """Statements and blocks around it; a condition only inside a loop, whose rounds it chooses from."""
    node: Block = first
    chosen = False
    while not _trains(source, node, training):
        chosen = (chosen or isinstance(node, cst.If)) and not isinstance(node, cst.For)
        if not chosen:
            yield node
        body = source.parents[node]
        holder = source.parents[body] if isinstance(body, cst.IndentedBlock) else None
        if not isinstance(holder, (cst.With, cst.For, cst.Try, cst.If)):
            return
        node = holder


def _trains(source: Source, block: Block, training: set[int]) -> bool:
    inside = set(m.findall(block, m.Call()))
    if any(call in inside and place[0] in training for place, call in source.calls.items()):
        return True
    return any(
        isinstance(call, cst.Call)
        and isinstance(call.func, cst.Attribute)
        and call.func.attr.value in _TRAINS
        for call in inside
    )


def _fault(source: Source, block: Block) -> str:
    """Why the block cannot be left out; empty when it can."""
    for kind, reason in _LEAVES.items():
        if _inside(block, kind):
            return reason
    if any(_leaves_loop(source, block, node) for node in _inside(block, cst.Break, cst.Continue)):
        return "it leaves a loop or goes on with it"
    for call in _inside(block, cst.Call):
        name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if name.endswith("_") and not name.startswith("_"):
            return f"it changes a tensor in place: {code(call.func)}"
    parts = [_names_of(target) for target in _targets(block)]
    bound = set().union(*(names for names, _ in parts))
    outer = [other for _, others in parts for other in others]
    outer += [node.target for node in _inside(block, cst.AugAssign)]
    for other in outer:
        if not isinstance(other, cst.Name) or other.value not in bound:
            return f"it stores into {code(other)}"
    bound |= {
        call.func.value.value
        for call in _inside(block, cst.Call)
        if isinstance(call.func, cst.Attribute)
        and call.func.attr.value in _GROW
        and isinstance(call.func.value, cst.Name)
    }
    scope: cst.CSTNode = block
    while not isinstance(scope, _SCOPES):
        scope = source.parents[scope]
    needed = sorted(bound & _read_outside(scope, block, frozenset()))
    return f"other lines read {', '.join(needed)}" if needed else ""


def _inside(root: cst.CSTNode, *kinds: type[Node]) -> list[Node]:
    found = [root] if isinstance(root, kinds) else []
    return [*found, *(node for child in root.children for node in _inside(child, *kinds))]


def _leaves_loop(source: Source, block: Block, node: cst.CSTNode) -> bool:
    while node is not block:
        node = source.parents[node]
        if isinstance(node, (cst.For, cst.While)):
            return False
    return True


def _targets(block: cst.CSTNode) -> list[cst.BaseExpression]:
    """Everything the block assigns to, outside of comprehensions."""
    if isinstance(block, (*_COMPREHENSIONS, cst.Lambda, cst.FunctionDef)):
        return []
    found: list[cst.BaseExpression] = []
    if isinstance(block, cst.AssignTarget | cst.AnnAssign | cst.NamedExpr | cst.For):
        found.append(block.target)
    elif isinstance(block, cst.AsName):
        found.append(block.name)
    elif isinstance(block, cst.ImportAlias) and block.asname is None:
        package: cst.BaseExpression = block.name
        while isinstance(package, cst.Attribute):
            package = package.value
        found.append(package)
    return [*found, *(target for child in block.children for target in _targets(child))]


def _names_of(target: cst.BaseExpression) -> tuple[set[str], list[cst.BaseExpression]]:
    """Names that a target binds, and the objects that it stores into."""
    if isinstance(target, cst.Name):
        return {target.value}, []
    if isinstance(target, (cst.Tuple, cst.List)):
        parts = [_names_of(element.value) for element in target.elements]
        return set().union(*(names for names, _ in parts)), [o for _, others in parts for o in others]
    if isinstance(target, (cst.Attribute, cst.Subscript)):
        return set(), [target.value]
    return set(), [target]


def _read_outside(node: cst.CSTNode, block: cst.CSTNode, own: frozenset[str]) -> set[str]:
    """Names that the scope reads beside the block; those a comprehension binds for itself do not count."""
    if node is block or isinstance(node, cst.Param | cst.AsName):
        return set()
    if isinstance(node, cst.Name):
        return set() if node.value in own else {node.value}
    if isinstance(node, cst.Attribute):
        return _read_outside(node.value, block, own)
    if isinstance(node, cst.Arg):  # a keyword is no name of the scope
        return _read_outside(node.value, block, own)
    if isinstance(node, cst.For):
        parts: list[cst.CSTNode] = [node.iter, node.body, *([node.orelse] if node.orelse else [])]
        return set().union(*(_read_outside(part, block, own) for part in parts))
    if isinstance(node, cst.AssignTarget) and isinstance(node.target, (cst.Name, cst.Tuple)):
        return set()
    if isinstance(node, _COMPREHENSIONS):
        mine: set[str] = set()
        part: cst.CompFor | None = node.for_in
        while part is not None:
            mine |= _names_of(part.target)[0]
            part = part.inner_for_in
        own = own | mine
    return set().union(*(_read_outside(child, block, own) for child in node.children))
