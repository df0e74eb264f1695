"""Edit one source text at recorded calls: text and edits in, text out; nothing else is touched.

Edits of several rules to one call or one file are merged; contradicting ones are refused with both names.
The result always compiles, and the same edits on the result change nothing.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from autotune.apply import blocks, calls, snippets, statements
from autotune.apply.imports import add_imports
from autotune.apply.locate import EditRefused, Source, code, find_call, parse
from autotune.records.sites import Site

CALL_ACTIONS = frozenset({"set_keyword", "wrap_argument", "wrap_call"})
STATEMENT_ACTIONS = frozenset(
    {"delete_statement", "insert_after", "insert_before", "wrap_statement", "wrap_block"}
)
SITE_ACTIONS = CALL_ACTIONS | STATEMENT_ACTIONS


@dataclass(frozen=True)
class Edit:
    """One edit primitive at one site."""

    rule: str
    action: str
    site: Site
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class Refusal:
    """An edit that was not made."""

    edit: Edit
    reason: str

    def __str__(self) -> str:
        return f"{self.edit.site.file}:{self.edit.site.line}: {self.edit.rule}: {self.reason}"


@dataclass
class EditResult:
    """The edited text and what was not done."""

    text: str
    refused: list[Refusal] = field(default_factory=list)
    conflicts: list[tuple[str, str, str]] = field(default_factory=list)  # rule, rule, reason


def edit_source(text: str, edits: Sequence[Edit], imports: Sequence[str] = ()) -> EditResult:
    """Make `edits` and add `imports`. An edit that cannot be made safely is refused; the others stand."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    result = EditResult(text)
    try:
        source = parse(text[len(mark) :])
    except EditRefused as fault:
        result.refused = [Refusal(edit, str(fault)) for edit in edits]
        return result
    work = _Work(source)
    for edit in edits:
        try:
            work.add(edit)
        except _Clash as clash:
            result.conflicts.append((clash.other, edit.rule, clash.reason))
            result.refused.append(Refusal(edit, clash.reason))
        except EditRefused as fault:
            result.refused.append(Refusal(edit, str(fault)))
    module = source.module
    if work.call_plans or work.statement_plan.smalls or work.statement_plan.compounds:
        transformer = _Transformer(work)
        try:
            module = cst.ensure_type(module.visit(transformer), cst.Module)
        except EditRefused as fault:  # two edits that only together cannot be written
            result.refused = [Refusal(edit, str(fault)) for edit in edits]
            return result
    new = mark + add_imports(module, list(imports)).code
    flaw = _fault(new)
    if flaw and not _fault(text):  # a file this Python is too old for was read by the parser above
        result.refused = [Refusal(edit, f"the edited file would not compile: {flaw}") for edit in edits]
        return result
    if flaw:
        try:
            cst.parse_module(new.removeprefix("\ufeff"))
        except cst.ParserSyntaxError as broken:
            reason = f"the edited file would not compile: {broken.message}"
            result.refused = [Refusal(edit, reason) for edit in edits]
            return result
    result.text = new
    return result


def _fault(text: str) -> str:
    """Why this Python does not compile the text; empty when it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text.removeprefix("\ufeff"), "<edited>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as fault:
        return str(fault)
    return ""


class _Clash(EditRefused):
    """Two rules want different things of one call."""

    def __init__(self, other: str, reason: str) -> None:
        super().__init__(reason)
        self.other = other
        self.reason = reason


@dataclass
class _CallPlan:
    """Everything wanted of one call."""

    site: Site
    keywords: dict[str, tuple[str, str, bool]] = field(default_factory=dict)  # name -> value, rule, if absent
    removed: dict[str, str] = field(default_factory=dict)
    wrapped: dict[str, tuple[str, int | None, str | None, str]] = field(default_factory=dict)
    outer: list[tuple[str, str]] = field(default_factory=list)  # template, rule
    deleted: str | None = None

    def rules(self) -> list[str]:
        """Rules that edit the call itself."""
        named = [r for _, r, _ in self.keywords.values()] + list(self.removed.values())
        return named + [w[3] for w in self.wrapped.values()] + [r for _, r in self.outer]


class _Work:
    """Collects edits by call and statement, refusing contradictions."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.call_plans: dict[cst.Call, _CallPlan] = {}
        self.statement_plan = statements.StatementPlan()

    def add(self, edit: Edit) -> None:
        call = find_call(self.source, edit.site)
        plan = self.call_plans.get(call) or _CallPlan(edit.site)
        if edit.action == "delete_statement":
            if plan.rules():
                raise _Clash(plan.rules()[0], f"{plan.rules()[0]} edits the call that {edit.rule} deletes")
            statements.plan_delete(self.statement_plan, statements.owner_of(self.source, call))
            plan.deleted = edit.rule
        elif edit.action in CALL_ACTIONS:
            if plan.deleted is not None:
                raise _Clash(plan.deleted, f"{plan.deleted} deletes the call that {edit.rule} edits")
            self._add_call_edit(plan, call, edit)
        elif edit.action in STATEMENT_ACTIONS:
            self._add_statement_edit(call, edit)
        else:
            raise EditRefused(f"'{edit.action}' is not an edit of a call")
        self.call_plans[call] = plan

    def _add_call_edit(self, plan: _CallPlan, call: cst.Call, edit: Edit) -> None:
        # Work on a copy so that a refused edit leaves nothing behind.
        trial = _CallPlan(
            plan.site, dict(plan.keywords), dict(plan.removed), dict(plan.wrapped), list(plan.outer)
        )
        if edit.action == "set_keyword":
            only_if_absent = edit.arguments.get("only_if_absent") is True
            for name, value in mapping(edit.arguments, "keywords").items():
                self._check_argument(trial, name, str(value), edit.rule)
                trial.keywords[name] = (str(value), edit.rule, only_if_absent)
            for name in strings(edit.arguments, "remove"):
                self._check_argument(trial, name, None, edit.rule)
                trial.removed[name] = edit.rule
        elif edit.action == "wrap_argument":
            name = str(edit.arguments["argument"])
            wanted = str(edit.arguments["template"])
            old = trial.wrapped.get(name)
            if old is not None and old[0] != wanted:
                raise _Clash(old[3], f"{old[3]} and {edit.rule} both wrap the argument '{name}'")
            for rule in (trial.keywords.get(name, ("", ""))[1], trial.removed.get(name)):
                if rule:
                    raise _Clash(rule, f"{rule} sets the argument '{name}' that {edit.rule} wraps")
            missing = edit.arguments.get("missing")
            position = edit.arguments.get("position")
            trial.wrapped[name] = (
                wanted,
                position if isinstance(position, int) else None,
                None if missing is None else str(missing),
                edit.rule,
            )
        else:
            raw = str(edit.arguments["template"])
            if "{original}" not in raw and calls.is_wrapped(call, _PLACEHOLDER.sub("{original}", raw)):
                return  # a template in place of the call stands there already
            template = fill(raw, call, edit.site, keep=("{original}",))
            if template not in [t for t, _ in trial.outer] and not self._is_outer(call, template):
                trial.outer.append((template, edit.rule))
        apply_call_plan(trial, call)  # refuses now, while the rule is known
        plan.keywords, plan.removed = trial.keywords, trial.removed
        plan.wrapped, plan.outer = trial.wrapped, trial.outer

    def _check_argument(self, plan: _CallPlan, name: str, value: str | None, rule: str) -> None:
        if name in plan.wrapped:
            other = plan.wrapped[name][3]
            raise _Clash(other, f"{other} wraps the argument '{name}' that {rule} sets")
        if name in plan.removed and value is not None:
            other = plan.removed[name]
            raise _Clash(other, f"{other} removes the argument '{name}' that {rule} sets")
        if name in plan.keywords:
            there, other, _ = plan.keywords[name]
            if value is None or not calls.same(calls.expression(there), calls.expression(value)):
                wish = "removes it" if value is None else f"sets it to {value}"
                raise _Clash(other, f"{other} sets '{name}' to {there} and {rule} {wish}")

    def _is_outer(self, call: cst.Call, template: str) -> bool:
        """Whether the call already stands inside the template."""
        node: cst.CSTNode = call
        while not isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            node = self.source.parents[node]
            if isinstance(node, cst.BaseExpression) and calls.is_wrapped(node, template):
                return True
        return False

    def _add_statement_edit(self, call: cst.Call, edit: Edit) -> None:
        owner = statements.owner_of(self.source, call)
        raw = str(edit.arguments["template"])
        template = fill(raw, call, edit.site, keep=("{target}", "{statement}"))
        if edit.action == "insert_before":
            statements.plan_insert_before(self.source, self.statement_plan, owner, template)
        elif edit.action == "insert_after":
            statements.plan_insert_after(self.source, self.statement_plan, owner, template)
        elif edit.action == "wrap_block":
            blocks.plan_wrap(self.source, self.statement_plan, call, template, _lines(edit.arguments))
        else:
            statements.plan_wrap(self.source, self.statement_plan, owner, template)


def apply_call_plan(plan: _CallPlan, call: cst.Call) -> cst.BaseExpression:
    """The call with everything wanted of it."""
    seen = plan.site.arguments
    for name, (template, position, missing, _) in plan.wrapped.items():
        call = calls.wrap_argument(call, name, position, template, missing, seen)
    for name, (value, _, only_if_absent) in plan.keywords.items():
        call = calls.set_keyword(call, name, value, seen, only_if_absent=only_if_absent)
    for name in plan.removed:
        call = calls.remove_keyword(call, name, seen)
    out: cst.BaseExpression = call
    for template, _ in plan.outer:
        out = calls.expression(template.replace("{original}", code(out)))
    return out


_PLACEHOLDER = re.compile(r"\{(original|receiver|function|arguments|target|statement|argument\.\w+)\}")


def fill(template: str, call: cst.Call, site: Site, keep: tuple[str, ...] = ()) -> str:
    """Fill the placeholders of a rule's template from the call; those in `keep` stay for later."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if match.group(0) in keep:
            return match.group(0)
        if name == "receiver":
            if not isinstance(call.func, cst.Attribute):
                raise EditRefused("the call has no receiver")
            return code(call.func.value)
        if name == "function":
            return code(call.func)
        if name == "arguments":
            return ", ".join(code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for arg in call.args)
        if name.startswith("argument."):
            wanted = name.removeprefix("argument.")
            at = calls.find_argument(call, wanted, site.arguments)
            if at is None:
                raise EditRefused(f"the call has no argument '{wanted}'")
            return code(call.args[at].value)
        if name == "original":
            return code(call)
        raise EditRefused(f"'{match.group(0)}' has no meaning for this edit")

    return _PLACEHOLDER.sub(value, template)


def mapping(arguments: Mapping[str, object], key: str) -> dict[str, object]:
    """A mapping parameter of a step; empty when absent."""
    value = arguments.get(key) or {}
    if not isinstance(value, Mapping):
        raise EditRefused(f"'{key}' is not a mapping")
    return {str(k): v for k, v in value.items()}


def strings(arguments: Mapping[str, object], key: str) -> list[str]:
    """A list-of-strings parameter of a step; empty when absent."""
    value = arguments.get(key) or []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, (list, tuple)):
        raise EditRefused(f"'{key}' is not a list")
    return [str(v) for v in value]


def _lines(arguments: Mapping[str, object]) -> list[int]:
    """Lines of the file that train."""
    value = arguments.get("training_lines") or []
    return [line for line in value if isinstance(line, int)] if isinstance(value, (list, tuple)) else []


class _Transformer(cst.CSTTransformer):
    """Writes the collected edits into the tree."""

    def __init__(self, work: _Work) -> None:
        self.work = work
        self.module = work.source.module

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        plan = self.work.call_plans.get(original_node)
        return updated_node if plan is None else apply_call_plan(plan, updated_node)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        plans = self._plans(original_node)
        if plans is None:
            return updated_node
        return cst.FlattenSentinel(snippets.rebuild_line(updated_node, plans, self.module))

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.BaseSuite:
        plans = self._plans(original_node)
        if plans is None:
            return updated_node
        body = snippets.rebuild_line(updated_node, plans, self.module)
        return cst.IndentedBlock(body=snippets.fold_removed(body))

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.BaseSuite:
        return updated_node.with_changes(body=snippets.fold_removed(updated_node.body))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if not updated_node.body:
            return updated_node
        return updated_node.with_changes(body=snippets.fold_removed(updated_node.body))

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        out = super().on_leave(original_node, updated_node)
        if not isinstance(original_node, cst.BaseCompoundStatement):
            return out
        plan = self.work.statement_plan.compounds.get(original_node)
        if plan is None or not isinstance(out, cst.BaseCompoundStatement):
            return out
        return self._compound(plan, original_node, out)

    def _plans(
        self, line: cst.SimpleStatementLine | cst.SimpleStatementSuite
    ) -> list[snippets.LinePlan | None] | None:
        plans = [self.work.statement_plan.smalls.get(small) for small in line.body]
        return plans if any(plan is not None for plan in plans) else None

    def _compound(
        self,
        plan: statements.CompoundPlan,
        original: cst.BaseCompoundStatement,
        updated: cst.BaseCompoundStatement,
    ) -> cst.FlattenSentinel[cst.BaseStatement]:
        before = [s for snippet in plan.before for s in snippets.parse_snippet(snippet, self.module)]
        first = [s for snippet in plan.body_first for s in snippets.parse_snippet(snippet, self.module)]
        body: list[cst.BaseStatement] = [*updated.body.body] if first or plan.drop_item else []
        out: list[cst.BaseStatement]
        if isinstance(updated.body, cst.SimpleStatementSuite) and body:
            body = [cst.SimpleStatementLine(body=updated.body.body)]
        if isinstance(updated, cst.With) and plan.drop_item is not None:
            at = list(cst.ensure_type(original, cst.With).items).index(plan.drop_item)
            items = [item for i, item in enumerate(updated.items) if i != at]
            if items:
                items[-1] = items[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                out = [updated.with_changes(items=items)]
            else:
                out = [*first, *body]
        elif first:
            out = [updated.with_changes(body=cst.IndentedBlock(body=[*first, *body]))]
        else:
            out = [updated]
        if plan.wrap:
            out = [s.with_changes(leading_lines=[]) if s is updated else s for s in out]
        for template in plan.wrap:
            out = snippets.wrapped(template, out, self.module)
        out = [*before, *out]
        leading = list(getattr(updated, "leading_lines", ()))
        if out and out[0] is not updated:
            out = [s.with_changes(leading_lines=[]) if s is updated else s for s in out]
            own = list(getattr(out[0], "leading_lines", ())) if plan.drop_item or before else []
            out[0] = out[0].with_changes(leading_lines=[*leading, *[o for o in own if o not in leading]])
        return cst.FlattenSentinel(out)
