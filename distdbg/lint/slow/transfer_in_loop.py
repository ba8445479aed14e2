"""The same tensor is made on the host and copied to the GPU on every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.devices import to_gpu
from distdbg.lint.script.script import Loop, names_in

_FILLED = {"zeros", "ones", "full", "arange", "eye", "linspace", "empty"}
_FROM_DATA = {"tensor", "as_tensor", "FloatTensor", "LongTensor", "Tensor"}
_OTHERS = {"rand", "randn", "randint", "randperm", "from_numpy"}
_BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.Lambda)

#: without these words there is nothing to check
NEEDS = ({"to(", "cuda("}, re.compile(r"backward\(|loader", re.IGNORECASE))


def check(context: Context) -> Iterator[Hit]:
    for call in context.script.calls("to", "cuda"):
        if not isinstance(call.func, ast.Attribute) or not to_gpu(call):
            continue
        loop = _batch_loop(context, call)
        if loop is None:
            continue
        made = _made(context, call.func.value)
        if made is not None and _is_constant(context, made):
            yield _hit(context, call, "is made on the host and copied to the GPU on every step", ())
        elif isinstance(call.func.value, ast.Name):
            site = _made_before(context, loop, call.func.value)
            if site is not None:
                yield _hit(context, call, "copies the same tensor on every step", ((site, "made once, on the host"),))


def _hit(context: Context, call: ast.Call, text: str, related: tuple[tuple[ast.AST, str], ...]) -> Hit:
    return Hit(call, f"{context.script.source(call)[:60]} {text}", related=related)


def _batch_loop(context: Context, call: ast.Call) -> Loop | None:
    """The innermost loop, if it goes over batches, and nothing in it lets the call be left out."""
    loop = next(iter(context.script.loops_around(call)), None)
    if loop is None:
        return None
    over_a_loader = not isinstance(loop, ast.While) and (
        context.values.sites(loop.iter, "loader") or any("loader" in w.lower() for w in names_in(loop.iter))
    )
    if loop not in context.loops.training and not over_a_loader:
        return None
    for outer in context.script.above(call):
        if outer is loop:
            return loop
        if isinstance(outer, _BRANCHES):
            return None
    return None


def _made(context: Context, node: ast.expr) -> ast.Call | None:
    """The constructor at the root of `torch.zeros(…).float()`, unless it is made on a device."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = context.script.call_names[node]
        last = name.rpartition(".")[2]
        if name == f"torch.{last}" and last in _FILLED | _FROM_DATA | _OTHERS:
            return None if {k.arg for k in node.keywords} & {"device", "out", None} else node
        if last in ("to", "cuda", "to_device"):
            return None
        node = node.func.value
    return None


def _is_constant(context: Context, made: ast.Call) -> bool:
    last = context.script.last_names[made]
    if last in _FILLED:
        return True
    return (
        last in _FROM_DATA
        and bool(made.args)
        and all(not isinstance(n, (ast.Name, ast.Attribute, ast.Call)) for n in ast.walk(made.args[0]))
    )


def _made_before(context: Context, loop: Loop, name: ast.Name) -> ast.Call | None:
    """Bound once, to a tensor on the host, before the loop and in its function; nothing in the loop may change it."""
    script, key = context.script, context.values.key(name)
    stores = [n for n in script.all(ast.Name) if n.id == name.id and not isinstance(n.ctx, ast.Load)]
    stores = [n for n in stores if context.values.key(n) == key]
    statement = script.parents[stores[0]] if len(stores) == 1 else None
    if not isinstance(statement, ast.Assign) or script.contains(loop, statement):
        return None
    for inner in script.within(loop, ast.Name):
        if inner.id == name.id and _may_change(script.parents[inner], inner):
            return None
    return _made(context, statement.value)


def _may_change(user: ast.AST, name: ast.Name) -> bool:
    """Written in place, or handed on as it is: what is done to it there is not looked at."""
    match user:
        case ast.Attribute(attr=attr):
            return (attr.endswith("_") and not attr.endswith("__")) or attr in ("data", "resize", "set")
        case ast.Subscript(ctx=context):
            return not isinstance(context, ast.Load)
        case ast.Call(args=args):
            return name in args
        case ast.keyword() | ast.AugAssign() | ast.Starred() | ast.Tuple() | ast.List() | ast.Dict() | ast.Assign():
            return True
    return bool(names_in(user) & {"out"})
