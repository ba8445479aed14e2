"""A metric that each rank computes of its own part of the data, and that nothing puts together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import LOOPS, Function, Loop, argument, names_in

REAL_MISTAKES = 7
#: without these words there is nothing to check
NEEDS = (
    re.compile(r"^DistributedSampler$|^prepare\($|^LightningModule$"),
    re.compile(r"^eval\($|no_grad|inference_mode|^log\($"),
)

#: words of what puts the parts together, or may
_TOGETHER = re.compile(
    r"all_?reduce|reduce|gather|sync|(?:^|_)dist(?:_|$)|distributed|broadcast|barrier|torchmetrics|average_across|world_?size|accelerator",
    re.IGNORECASE,
)


def check(context: Context) -> Iterator[Hit]:
    script, loops = context.script, context.loops
    if context.frameworks or not context.values.of_kind("sampler"):
        return
    seen: set[ast.AST] = set()
    for loop in script.all(ast.For, ast.AsyncFor):
        function = script.function_of(loop)
        if function is None or function in seen or not loops.without_grad(loop) or script.loops_around(loop):
            continue
        sampler = _sampler(context, loop)
        if sampler is None or any(e.kind == "backward" for e in loops.does(loop)):
            continue
        kept = _kept(context, loop, function)
        if kept is None or _put_together(context, function):
            continue
        seen.add(function)
        yield Hit(
            kept,
            f"each rank computes {ast.unparse(kept.target)} of its own part of the data, and nothing adds the parts up",
            related=((loop, "the evaluation"), (sampler, "divides the data between the ranks")),
        )


def _sampler(context: Context, loop: Loop) -> ast.Call | None:
    """The DistributedSampler of every loader that the loop may read."""
    loaders = (
        []
        if isinstance(loop, ast.While)
        else sorted(context.values.sites(loop.iter, "loader"), key=context.script.begin.__getitem__)
    )
    given = [argument(one, 3, "sampler") for one in loaders]
    samplers = [context.values.sites(one, "sampler") if one is not None else set() for one in given]
    return next(iter(samplers[0])) if samplers and all(samplers) else None


def _kept(context: Context, loop: Loop, function: Function) -> ast.AugAssign | None:
    """`correct += …` in the loop, of a name that is returned or shown behind it."""
    script = context.script
    for added in script.within(loop, ast.AugAssign):
        if not isinstance(added.op, ast.Add) or not isinstance(added.target, ast.Name):
            continue
        if isinstance(added.value, ast.Constant) or script.function_of(added) is not function:
            continue
        for node in script.within(function, ast.Return, ast.Call):
            behind = script.begin[node] >= script.end[loop]
            shown = isinstance(node, ast.Return) or script.last_names[node] in ("print", "info", "add_scalar", "log")
            if behind and shown and _about(context, node, added.target.id, function):
                return added  # type: ignore[no-any-return]
    return None


def _about(context: Context, node: ast.AST, name: str, function: Function) -> bool:
    """Does an expression have this name, or one that was computed from it?"""
    words = names_in(node)
    made = (a for a in context.script.within(function, ast.Assign) if name in names_in(a.value))
    return name in words or any(isinstance(t, ast.Name) and t.id in words for a in made for t in a.targets)


def _put_together(context: Context, function: Function) -> bool:
    """By this function, by those that it calls, or by one of its callers."""
    script = context.script
    callers = {f for call in context.values.callers.get(function, []) if (f := script.function_of(call)) is not None}
    if not context.values.callers.get(function):
        return True  # who knows what is done with it
    places = [function, *context.loops.reached(function)]
    if any(_TOGETHER.search(w) for place in places for w in names_in(place)):
        return True
    for call in context.values.callers[function]:
        around = [o for o in script.above(call) if isinstance(o, LOOPS)]
        block = around[0] if around else script.function_of(call) or script.module_of(call)
        calls = script.within(block, ast.Call)
        if any(_TOGETHER.search(script.last_names[c]) for c in calls if script.last_names[c] != "DistributedSampler"):
            return True
    return context.ranks.guarded(function) or any(context.ranks.guarded(c) for c in callers)
