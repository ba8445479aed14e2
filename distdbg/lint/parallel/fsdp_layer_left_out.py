"""A loop that shards all layers but the first or the last ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit

_PASS_ON = {"enumerate", "reversed", "list", "tqdm"}

#: without these words there is nothing to check
NEEDS = ({"fully_shard"},)


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    calls = [call for call in script.calls("fully_shard") if call.args]
    if any(isinstance(call.args[0], (ast.List, ast.Tuple, ast.ListComp)) for call in calls):
        return  # several layers may share a unit
    for call in calls:
        loop = next((one for one in script.loops_around(call) if isinstance(one, ast.For)), None)
        part = _part(loop.iter) if loop is not None else None
        if loop is None or part is None or not _is_item(loop.target, call.args[0]):
            continue
        last = part.slice.upper is not None if isinstance(part.slice, ast.Slice) else False
        if not any(_takes(one, last=last) for one in script.all(ast.Subscript) if one is not part):
            yield Hit(
                call,
                f"only {ast.unparse(part)} become FSDP units",
                related=((part, "the other layers are gathered with the unit around them"),),
            )


def _part(iterated: ast.expr) -> ast.Subscript | None:
    """`layers[:-1]` or `layers[2:]`, which leave out some at an end; a slice by a variable may be a stage's."""
    match iterated:
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _PASS_ON:
            return _part(inner)
        case ast.Subscript(slice=ast.Slice(lower=None, upper=ast.UnaryOp(op=ast.USub(), operand=ast.Constant()))):
            return iterated
        case ast.Subscript(slice=ast.Slice(lower=ast.Constant(value=int(first)), upper=None, step=None)) if first > 0:
            return iterated
    return None


def _takes(node: ast.Subscript, *, last: bool) -> bool:
    """`x[-1]`, `x[-2:]` for the last ones; `x[0]`, `x[:2]` for the first ones: under any name."""
    for one in (node.slice.lower, node.slice.upper) if isinstance(node.slice, ast.Slice) else (node.slice,):
        negative = isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub)
        if negative if last else isinstance(one, ast.Constant) and isinstance(one.value, int):
            return True
    return False


def _is_item(target: ast.expr, given: ast.expr) -> bool:
    """Is what the loop gives, by itself or beside its number, what is sharded?"""
    names = target.elts[-1:] if isinstance(target, ast.Tuple) else [target]
    return isinstance(given, ast.Name) and any(isinstance(one, ast.Name) and one.id == given.id for one in names)
