"""A value of each parameter is read from the GPU on every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import LOOPS, Loop, names_in

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
        hit = _of_each_parameter(context, loop)
        if hit is not None:
            yield hit


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
