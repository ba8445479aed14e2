"""Find collectives that a rank enters or not by its own data: by how many elements of its batch were selected."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.collectives import collective, waits
from distdbg.lint.script.script import FUNCTIONS, last_word, names_in

#: helpers that reduce over the ranks, by their names
_REDUCER = r"(?:all_)?reduce_(?:mean|sum|value|tensor|dict)"
_REDUCES = re.compile(rf"^{_REDUCER}$")
#: words without which no rank enters a collective by its own data
REDUCTIONS = re.compile(rf"^(?:{_REDUCER}|barrier)\($")
#: words without which no test is about a rank's own data
BY_DATA_WORDS = re.compile(r"^(?:nonzero|argwhere|masked_select|where|done)\($")
_SELECTS = {"nonzero", "argwhere", "masked_select", "where"}
_SIZES = {"numel", "nelement", "size", "sum", "any"}
#: of what the ranks have agreed on before
_AGREED = re.compile(r"reduce|gather|dist|broadcast|sync|world", re.IGNORECASE)
_RUNS_BESIDE = re.compile(r"fut|future|handle|task|thread|worker", re.IGNORECASE)


def decided_by_data(context: Context) -> Iterator[Hit]:
    script = context.script
    for call in script.all(ast.Call):
        name = _reduces(context, call)
        if not name:
            continue
        for guard, part in _guards(context, call):
            if any(_reduces(context, c) == name for block in _other_side(guard, call, context) for c in block):
                continue
            text = (
                f"{name} is entered by ranks for which `{script.source(part)[:60]}` holds: "
                "where their data differ, the others wait"
            )
            yield Hit(call, text, "likely", severity="warning", related=((guard, "each rank decides by itself"),))
            break


def _reduces(context: Context, call: ast.Call) -> str:
    """A collective, or a helper of another file that reduces over the ranks by its name."""
    entered = collective(context, call)
    name = entered.name if entered is not None and not entered.where else ""
    last = context.script.last_names[call]
    if name or not isinstance(call.func, ast.Name) or not _REDUCES.match(last):
        return name
    origin = context.script.file_of(call).names.get(call.func.id, "")
    if not origin or origin.startswith(("tensorflow", "jax", "keras")):
        return ""
    its = [c for f in context.values.callees(call) for c in context.script.within(f, ast.Call)]
    return last if not its or any(waits(context, c) for c in its) else ""


def _guards(context: Context, call: ast.Call) -> Iterator[tuple[ast.If, ast.expr]]:
    """Tests of this rank's data around the call, in its function."""
    below: ast.AST = call
    for outer in context.script.above(call):
        if isinstance(outer, FUNCTIONS):
            return
        if isinstance(outer, ast.If) and below is not outer.test:
            part = next((p for p in _parts(outer.test) if _about_own_data(context, p)), None)
            if part is not None:
                yield outer, part
        below = outer


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _parts(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand)
    else:
        yield test


def _about_own_data(context: Context, test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=left, ops=[_], comparators=[ast.Constant(value=0)]):
            test = left
    match test:
        case ast.Call(func=ast.Attribute(value=owner, attr="done"), args=[]):
            return _RUNS_BESIDE.search(last_word(owner)) is not None
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name() as owner]):
            return _selected(context, owner)
        case ast.Call(func=ast.Attribute(value=ast.Name() as owner, attr=attr)) if attr in _SIZES:
            return _selected(context, owner)
        case ast.Subscript(value=ast.Attribute(value=ast.Name() as owner, attr="shape")):
            return _selected(context, owner)
    return False


def _selected(context: Context, name: ast.Name) -> bool:
    """All that it is bound to was selected from a tensor by its values, and nothing was agreed on with other ranks."""
    bound = context.values.bound(name)
    words = [names_in(value) for value in bound]
    return bool(bound) and all(w & _SELECTS and not any(map(_AGREED.search, w)) for w in words)


def _other_side(guard: ast.If, call: ast.Call, context: Context) -> Iterator[list[ast.Call]]:
    inside = any(context.script.contains(statement, call) for statement in guard.body)
    for statement in guard.orelse if inside else guard.body:
        yield context.script.within(statement, ast.Call)
