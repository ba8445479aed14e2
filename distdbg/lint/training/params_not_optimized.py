"""A layer is replaced after the optimizer was given the parameters: the new one is never trained."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.kinds import OPTIMIZER, WITH_PARAMETERS
from distdbg.lint.script.script import argument

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = (OPTIMIZER, {"parameters"})


def check(context: Context) -> Iterator[Hit]:
    script, values = context.script, context.values
    if script.calls("add_param_group"):
        return
    layers = [a for a in script.all(ast.Assign) if _is_new(context, a.value)]
    for optimizer in values.of_kind("optimizer"):
        match argument(optimizer, 0, "params"):
            case ast.Call(func=ast.Attribute(value=model, attr="parameters"), args=[], keywords=[]):
                pass
            case _:
                continue
        for assigned in layers:
            same = script.scopes[assigned] is script.scopes[optimizer]
            if not same or script.begin[assigned] < script.begin[optimizer]:
                continue
            replaced = any(_replaces(context, t, model) for t in assigned.targets)
            replaced = replaced and not _built_again(context, optimizer, assigned)
            if replaced and not _done_with(context, optimizer, assigned):
                yield Hit(
                    assigned,
                    "this layer comes after the optimizer took the parameters: it is never stepped",
                    "certain",
                    related=((optimizer, "the optimizer"),),
                )


def _replaces(context: Context, target: ast.expr, model: ast.expr) -> bool:
    """`model.fc = …`, `model.heads[0] = …`, of that very model."""
    node = target.value if isinstance(target, ast.Subscript) else target
    while isinstance(node, ast.Attribute):
        node = node.value
        if context.values.key(node) == context.values.key(model) is not None:
            return True
    return False


def _is_new(context: Context, value: ast.expr) -> bool:
    """A layer of torch.nn that has parameters."""
    calls = [n for n in ast.walk(value) if isinstance(n, ast.Call)] if isinstance(value, ast.Call) else []
    names = {context.script.call_names[c] for c in calls}
    return any(n.startswith("torch.nn.") and n.rpartition(".")[2] in WITH_PARAMETERS for n in names)


def _built_again(context: Context, optimizer: ast.Call, after: ast.AST) -> bool:
    """Another optimizer is built below, or by what is called there, as transfer learning does in stages."""
    script, begin = context.script, context.script.begin
    later = [c for c in script.all(ast.Call) if script.scopes[c] is script.scopes[after] and begin[c] > begin[after]]
    reached = {function for call in later for function in context.loops.reached(call)}
    return any(
        o is not optimizer and (begin[o] > begin[after] or script.function_of(o) in reached)
        for o in context.values.of_kind("optimizer")
    )


def _done_with(context: Context, optimizer: ast.Call, after: ast.AST) -> bool:
    """The optimizer is passed to no call and not used again."""
    script, values, made = context.script, context.values, context.script.parents[optimizer]
    if not isinstance(made, ast.Assign) or script.loops_around(after):
        return False
    keys = {values.key(target) for target in made.targets}
    uses = [n for n in script.all(ast.Name) if isinstance(n.ctx, ast.Load) and values.key(n) in keys]
    return bool(uses) and all(
        isinstance(script.parents[use], ast.Attribute)
        and script.scopes[use] is script.scopes[after]
        and script.begin[use] < script.begin[after]
        for use in uses
    )
