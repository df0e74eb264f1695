"""Edits inside one call: set or remove keywords, wrap an argument, wrap the whole call.

Every function takes a call node and gives the edited one, laid out like its surroundings; an edit that
is already there changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst
import libcst.matchers as m

from autotune.apply.locate import EditRefused, code
from autotune.records.sites import Argument

_TIGHT_EQUAL = cst.AssignEqual(
    whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace("")
)


def expression(text: str) -> cst.BaseExpression:
    """Parse an expression of a rule. Raises EditRefused."""
    try:
        return cst.parse_expression(text.strip())
    except cst.ParserSyntaxError:
        raise EditRefused(f"'{text}' is not a Python expression") from None


def same(left: cst.CSTNode, right: cst.CSTNode) -> bool:
    """Equal code apart from layout (spaces, line breaks, trailing commas)."""
    import ast

    try:
        return ast.dump(ast.parse(f"({code(left)}\n)")) == ast.dump(ast.parse(f"({code(right)}\n)"))
    except SyntaxError:
        return left.deep_equals(right)


def set_keyword(
    call: cst.Call,
    name: str,
    value: str,
    seen: Mapping[str, Argument],
    *,
    only_if_absent: bool = False,
) -> cst.Call:
    """Give the argument `name` the value `value`, wherever the call takes it from now.

    `seen` are the arguments recorded at run time: they tell what positions and `**kwargs` carry.
    """
    wanted = expression(value)
    at = find_argument(call, name, seen)
    if at is not None:
        if only_if_absent or same(call.args[at].value, wanted):
            return call
        return _replace(call, at, wanted)
    stars = [i for i, arg in enumerate(call.args) if arg.star == "**"]
    if stars and not (only_if_absent and _in_stars(call, name) is None and name not in seen):
        return _set_in_stars(call, stars, name, wanted, seen, only_if_absent)
    if only_if_absent and name in seen and seen[name].origin != "default":
        return call
    return append_argument(call, name, wanted)


def remove_keyword(call: cst.Call, name: str, seen: Mapping[str, Argument]) -> cst.Call:
    """Take the argument `name` out of the call; nothing happens when it is not there.

    What `**` may bring and is None at run time is as good as not there.
    """
    at = find_argument(call, name, seen)
    if at is not None:
        if call.args[at].keyword is None:
            raise EditRefused(f"'{name}' is given by position and cannot be dropped")
        return _without(call, at)
    if name in seen and seen[name].origin == "star-kwargs" and seen[name].text != "None":
        stars = [i for i, arg in enumerate(call.args) if arg.star == "**"]
        for i in stars:
            literal = call.args[i].value
            if isinstance(literal, cst.Dict) and _dict_key(literal, name) is not None:
                kept = [e for e in literal.elements if not _is_key(e, name)]
                return _replace(call, i, literal.with_changes(elements=kept))
        if len(stars) == 1:
            inner = code(call.args[stars[0]].value)
            if f'!= "{name}"' in inner:
                return call
            return _replace(
                call, stars[0], expression(f'{{k: v for k, v in {inner}.items() if k != "{name}"}}')
            )
        raise EditRefused(f"'{name}' comes from one of several ** arguments")
    return call


def wrap_argument(
    call: cst.Call,
    name: str,
    position: int | None,
    template: str,
    missing: str | None,
    seen: Mapping[str, Argument],
) -> cst.Call:
    """Put the argument's expression into `template` at `{original}`; `missing` is used when there is none."""
    at = find_argument(call, name, seen, position)
    if at is not None:
        old = call.args[at].value
        if missing is not None and m.matches(old, m.Name("None")):
            return _replace(call, at, expression(missing))
        if is_wrapped(old, template) or (missing is not None and same(old, expression(missing))):
            return call
        return _replace(call, at, expression(template.replace("{original}", code(old))))
    stars = [i for i, arg in enumerate(call.args) if arg.star == "**"]
    carried = name in seen and seen[name].origin == "star-kwargs"
    if stars and (carried or not seen):
        if len(stars) == 1 and isinstance(call.args[stars[0]].value, cst.Name):
            holder = call.args[stars[0]].value
            key = f'{code(holder)}["{name}"]' if carried else f'{code(holder)}.get("{name}")'
            wanted = expression(template.replace("{original}", key))
            return _set_in_stars(call, stars, name, wanted, seen, False)
        literal = _in_stars(call, name)
        if literal is None:
            raise EditRefused(f"'{name}' is hidden in a ** argument that is not a plain name")
        i, key_at = literal
        holder_dict = cst.ensure_type(call.args[i].value, cst.Dict)
        element = cst.ensure_type(holder_dict.elements[key_at], cst.DictElement)
        if is_wrapped(element.value, template):
            return call
        wanted = expression(template.replace("{original}", code(element.value)))
        elements = [*holder_dict.elements]
        elements[key_at] = element.with_changes(value=wanted)
        return _replace(call, i, holder_dict.with_changes(elements=elements))
    if missing is None:
        raise EditRefused(f"the call has no argument '{name}'")
    return append_argument(call, name, expression(missing))


def is_wrapped(node: cst.BaseExpression, template: str) -> bool:
    """Whether `node` already is `template` around something."""
    return _fits(node, expression(template.replace("{original}", "AUTOTUNE_HOLE")))


def _fits(node: cst.CSTNode, shape: cst.CSTNode) -> bool:
    import ast

    def fits(left: object, right: object) -> bool:
        if isinstance(right, ast.Name) and right.id == "AUTOTUNE_HOLE":
            return True
        if isinstance(left, ast.AST) and isinstance(right, ast.AST):
            return type(left) is type(right) and all(
                fits(getattr(left, field, None), getattr(right, field, None)) for field in right._fields
            )
        if isinstance(left, list) and isinstance(right, list):
            return len(left) == len(right) and all(fits(a, b) for a, b in zip(left, right, strict=True))
        return bool(left == right)

    try:
        return fits(ast.parse(f"({code(node)}\n)"), ast.parse(f"({code(shape)}\n)"))
    except SyntaxError:
        return False


def find_argument(
    call: cst.Call, name: str, seen: Mapping[str, Argument], position: int | None = None
) -> int | None:
    """Index of the argument `name` in the call's own list, or None. Raises EditRefused behind a `*args`."""
    for i, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            return i
    recorded = seen.get(name)
    if recorded is not None and recorded.position is not None:
        position = recorded.position
    elif recorded is not None and recorded.origin != "unknown":
        return None
    if position is None:
        return None
    for i, arg in enumerate(call.args):
        if arg.star == "*":
            if recorded is not None and recorded.position is not None:
                raise EditRefused(f"'{name}' is given through *{code(arg.value)}")
            return None
        if arg.keyword is not None or arg.star == "**":
            return None
        if i == position:
            return i
    return None


def append_argument(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """Add `name=value` as the last argument, in the call's own layout."""
    fresh = cst.Arg(value=value, keyword=cst.Name(name), equal=_TIGHT_EQUAL)
    if not call.args:
        return call.with_changes(args=[fresh])
    last = call.args[-1]
    if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
        bare = last.value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        last = last.with_changes(value=bare)
    trailing = isinstance(last.comma, cst.Comma)
    separator = _separator(call)
    if trailing:
        # The last comma carries the way to the closing bracket: it moves to the new last argument.
        closing = last.comma
        fresh = fresh.with_changes(comma=closing, whitespace_after_arg=last.whitespace_after_arg)
        last = last.with_changes(comma=separator)
        after = closing.whitespace_after if isinstance(closing, cst.Comma) else None
        if isinstance(after, cst.ParenthesizedWhitespace) and after.first_line.comment is not None:
            # A comment behind the old last argument stays with it.
            kept = after.first_line
            bare_line = after.with_changes(
                first_line=kept.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
            )
            fresh = fresh.with_changes(comma=cst.Comma(whitespace_after=bare_line))
            if isinstance(separator.whitespace_after, cst.ParenthesizedWhitespace):
                wide = separator.whitespace_after.with_changes(first_line=kept)
                last = last.with_changes(comma=cst.Comma(whitespace_after=wide))
            else:
                indent = after.last_line
                wide = cst.ParenthesizedWhitespace(first_line=kept, indent=after.indent, last_line=indent)
                last = last.with_changes(comma=cst.Comma(whitespace_after=wide))
    else:
        tail = last.whitespace_after_arg
        fresh = fresh.with_changes(whitespace_after_arg=tail)
        if isinstance(tail, cst.ParenthesizedWhitespace) and tail.first_line.comment is not None:
            if not isinstance(separator.whitespace_after, cst.ParenthesizedWhitespace):
                raise EditRefused("a comment stands where the new argument would go")
            wide = separator.whitespace_after.with_changes(first_line=tail.first_line)
            separator = cst.Comma(whitespace_after=wide)
            plain = tail.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
            fresh = fresh.with_changes(whitespace_after_arg=tail.with_changes(first_line=plain))
        last = last.with_changes(comma=separator, whitespace_after_arg=cst.SimpleWhitespace(""))
    return call.with_changes(args=[*call.args[:-1], last, fresh])


def _separator(call: cst.Call) -> cst.Comma:
    """The comma and space that separates this call's arguments."""
    commas = [a.comma for a in call.args[:-1] if isinstance(a.comma, cst.Comma)]
    for comma in reversed(commas):
        space = comma.whitespace_after
        if isinstance(space, cst.ParenthesizedWhitespace):
            bare = cst.TrailingWhitespace(whitespace=cst.SimpleWhitespace(""), comment=None)
            return cst.Comma(whitespace_after=space.with_changes(first_line=bare, empty_lines=[]))
        return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    opening = call.whitespace_before_args
    if isinstance(opening, cst.ParenthesizedWhitespace):
        bare = cst.TrailingWhitespace(whitespace=cst.SimpleWhitespace(""), comment=None)
        return cst.Comma(whitespace_after=opening.with_changes(first_line=bare, empty_lines=[]))
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _replace(call: cst.Call, at: int, value: cst.BaseExpression) -> cst.Call:
    args = [*call.args]
    args[at] = args[at].with_changes(value=value)
    return call.with_changes(args=args)


def _without(call: cst.Call, at: int) -> cst.Call:
    args = [*call.args]
    gone = args.pop(at)
    if at == len(args) and args:
        previous = args[-1]
        args[-1] = previous.with_changes(
            comma=gone.comma if isinstance(gone.comma, cst.Comma) else cst.MaybeSentinel.DEFAULT,
            whitespace_after_arg=gone.whitespace_after_arg,
        )
    return call.with_changes(args=args)


def _set_in_stars(
    call: cst.Call,
    stars: list[int],
    name: str,
    wanted: cst.BaseExpression,
    seen: Mapping[str, Argument],
    only_if_absent: bool,
) -> cst.Call:
    """Set `name` in a call with `**` arguments, of which one may carry it."""
    literal = _in_stars(call, name)
    if literal is not None:
        i, key_at = literal
        holder = cst.ensure_type(call.args[i].value, cst.Dict)
        element = cst.ensure_type(holder.elements[key_at], cst.DictElement)
        if only_if_absent or same(element.value, wanted):
            return call
        elements = [*holder.elements]
        elements[key_at] = element.with_changes(value=wanted)
        return _replace(call, i, holder.with_changes(elements=elements))
    carried = name in seen and seen[name].origin == "star-kwargs"
    known_absent = bool(seen) and (name not in seen or seen[name].origin == "default")
    if only_if_absent and not known_absent:
        return call
    if known_absent and not carried:
        return append_argument(call, name, wanted)
    if stars != list(range(stars[0], stars[0] + len(stars))):
        raise EditRefused(f"'{name}' may come from any of several ** arguments that stand apart")
    pair = f'"{name}": {code(wanted)}'
    only = call.args[stars[0]].value
    if len(stars) == 1 and isinstance(only, cst.Dict):
        inner = ", ".join(code(e).rstrip(", ") for e in only.elements)
        merged = f"{{{inner}, {pair}}}" if inner else f"{{{pair}}}"
    else:
        merged = "{" + ", ".join(f"**{_star_operand(call.args[i].value)}" for i in stars) + f", {pair}}}"
    first = call.args[stars[0]].with_changes(value=expression(merged), comma=call.args[stars[-1]].comma)
    kept = [*call.args[: stars[0]], first, *call.args[stars[-1] + 1 :]]
    return call.with_changes(args=kept)


def _star_operand(node: cst.BaseExpression) -> str:
    simple = isinstance(node, (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Dict)) or node.lpar
    return code(node) if simple else f"({code(node)})"


def _in_stars(call: cst.Call, name: str) -> tuple[int, int] | None:
    """(argument index, element index) of a literal key `name` in a `**{...}` of the call; last wins."""
    for i in reversed(range(len(call.args))):
        arg = call.args[i]
        if arg.star == "**" and isinstance(arg.value, cst.Dict):
            at = _dict_key(arg.value, name)
            if at is not None:
                return i, at
    return None


def _dict_key(node: cst.Dict, name: str) -> int | None:
    """Index of the literal key `name`, if nothing after it in the display can override it."""
    for i in reversed(range(len(node.elements))):
        element = node.elements[i]
        if _is_key(element, name):
            return i
        if isinstance(element, cst.StarredDictElement):
            return None
    return None


def _is_key(element: cst.BaseDictElement, name: str) -> bool:
    return (
        isinstance(element, cst.DictElement)
        and isinstance(element.key, cst.SimpleString)
        and element.key.evaluated_value == name
    )
