"""A value is read from the GPU on every step, or for every parameter of every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import carrier
from distdbg.lint.script.script import LOOPS, Loop, names_in

_READS = {"item", "cpu", "tolist", "numpy"}
_GPU = re.compile(r"cuda|\bgpu|device|local_rank|accelerator", re.IGNORECASE)
_PARAMETERS = {"parameters", "named_parameters"}
_BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.BoolOp, ast.Lambda)

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = ({"backward("},)


def check(context: Context) -> Iterator[Hit]:
    if not _GPU.search(context.script.text) or context.frameworks & {"lightning", "trainer"}:
        return
    for loop in context.loops.training:
        hit = _of_each_parameter(context, loop) or _of_the_loss(context, loop)
        if hit is not None:
            yield hit


def _of_the_loss(context: Context, loop: Loop) -> Hit | None:
    """The first read of what goes backward, on every way through the loop's body."""
    script = context.script
    seen: set[tuple[ast.AST, str]] = set()
    for event in context.loops.does(loop):
        if event.kind != "backward" or not isinstance(event.call, ast.Call):
            continue
        name, place = carrier(event.call), loop if event.top is event.call else script.function_of(event.call)
        if name is None or place is None or (place, name) in seen:
            continue
        seen.add((place, name))
        reads = [c for c in script.within(place, ast.Call) if _reads(c, name) and _always(context, c, place)]
        reads = [c for c in reads if script.function_of(c) is script.function_of(event.call)]
        if reads:
            text = script.source(reads[0])[:60]
            return Hit(
                reads[0],
                f"{text} on every step: the host waits there until the GPU has done all of it",
                related=tuple((r, "and here") for r in reads[1:4] if r.lineno != reads[0].lineno),
            )
    return None


def _reads(call: ast.Call, name: str) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), args=[]) if attr in _READS:
            return _root(owner) == name
        case ast.Call(func=ast.Name(id="float" | "int" | "bool"), args=[ast.Name(id=given)]):
            return given == name
        case ast.Call(func=ast.Name(id="print"), args=args):
            parts = [p for a in args if isinstance(a, ast.JoinedStr) for p in a.values]
            shown = [*args, *(p.value for p in parts if isinstance(p, ast.FormattedValue))]
            return any(isinstance(v, ast.Name) and v.id == name for v in shown)
    return False


def _root(owner: ast.expr) -> str | None:
    """`loss` of `loss.detach()` and of `loss['total']`."""
    while isinstance(owner, (ast.Attribute, ast.Subscript, ast.Call)):
        owner = owner.func if isinstance(owner, ast.Call) else owner.value
    return owner.id if isinstance(owner, ast.Name) else None


def _always(context: Context, call: ast.AST, place: ast.AST) -> bool:
    """Below no branch inside `place`, and behind no `if …: continue`."""
    script, below = context.script, call
    for outer in script.above(call):
        if isinstance(outer, _BRANCHES) and not (isinstance(outer, ast.Try) and below in outer.body):
            return False
        for block in (getattr(outer, "body", None), getattr(outer, "orelse", None)):
            if isinstance(block, list) and below in block:
                before = block[: block.index(below)]
                if any(isinstance(s, ast.If) and isinstance(s.body[-1], (ast.Continue, ast.Return)) for s in before):
                    return False
        if outer is place:
            return True
        below = outer
    return False


def _of_each_parameter(context: Context, loop: Loop) -> Hit | None:
    """`for p in model.parameters(): total += p.grad.norm().item()`, in the loop or in a function that it calls."""
    script = context.script
    places: list[ast.AST] = [loop]
    for call in script.within(loop, ast.Call):
        if _always(context, call, loop):
            places += context.values.callees(call)
    for place in places:
        for inner in script.within(place, *LOOPS):
            if isinstance(inner, ast.While) or inner is loop or not _always(context, inner, place):
                continue
            if not names_in(inner.iter) & _PARAMETERS:
                continue
            targets = {n.id for n in ast.walk(inner.target) if isinstance(n, ast.Name)}
            for call in script.within(inner, ast.Call):
                if getattr(call.func, "attr", "") == "item" and _of(context, inner, call, targets):
                    return Hit(
                        call,
                        f"{script.source(call)[:60]} for each parameter on every step: the host waits for the GPU "
                        "as many times",
                        severity="warning",
                        related=((inner, "the loop over parameters"), (loop, "the training loop")),
                    )
    return None


def _of(context: Context, loop: Loop, call: ast.Call, targets: set[str]) -> bool:
    """Is what is read computed from the loop's parameter?"""
    root = _root(call.func)
    made = {
        n.id: names_in(a.value)
        for a in context.script.within(loop, ast.Assign)
        for n in a.targets
        if isinstance(n, ast.Name)
    }
    words = names_in(call.func) | made.get(root or "", set())
    return root is not None and bool(words & targets) and context.script.loops_around(call)[:1] == [loop]
