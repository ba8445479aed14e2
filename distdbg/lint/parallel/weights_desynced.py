"""Weights that differ from rank to rank: loaded by some ranks only, or trained outside of DDP beside a model in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, names_in

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = ({"load_state_dict(", "parameters("}, {"DistributedDataParallel", "DDP"})
#: something makes all ranks equal again
UNLESS = re.compile(r"broadcast|sync_params|_sync_")


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    if context.frameworks:
        return
    yield from _trained_outside(context)
    for call in script.calls("load_state_dict"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        wraps = context.values.sites(owner, "ddp") if owner is not None else set()
        guards = context.ranks.guards(call)
        if len(wraps) != 1 or len(guards) != 1 or not isinstance(guards[0].node, ast.If) or guards[0].otherwise:
            continue
        wrap = next(iter(wraps))
        same = script.scopes[wrap] is script.scopes[call] and script.begin[wrap] < script.begin[call]
        if same and not guards[0].node.orelse and not _may_be_all(context, guards[0].test):
            yield Hit(
                call,
                "only some ranks load these weights, after DDP has made all ranks equal",
                related=((guards[0].node, "asks for the rank"), (wrap, "wrapped here")),
            )


def _may_be_all(context: Context, test: ast.expr | None) -> bool:
    """`args.resume or rank == 0`: it is not certain that a rank is left out."""
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.Or) or not any(context.ranks.asks(v) for v in test.values)
    return test is None


def _trained_outside(context: Context) -> Iterator[Hit]:
    """One optimizer steps a model in DDP and another one that is not: nobody averages the gradients of that one."""
    script, values = context.script, context.values
    optimizers = values.of_kind("optimizer") if values.of_kind("ddp") else []
    if not optimizers or _REDUCES.search(script.text):
        return
    for optimizer in optimizers:
        function = script.function_of(optimizer)
        in_a_list = isinstance(argument(optimizer, 0, "params"), ast.Name)
        calls = script.calls("parameters") if in_a_list else script.within(optimizer, ast.Call)
        given = [c for c in calls if script.last_names[c] == "parameters" and _is_given(context, c, optimizer)]
        models = [c.func.value for c in given if isinstance(c.func, ast.Attribute)]
        wrapped = [m for m in models if values.sites(m, "ddp")]
        for model in models if wrapped else ():
            key, made = values.key(model), [a for a in values.assignments(model) if isinstance(a.value, ast.Call)]
            if not isinstance(model, ast.Name) or values.sites(model, "ddp") or not made or key is None:
                continue
            uses = [
                c for c in script.calls(model.id) if values.key(c.func) == key and script.function_of(c) is function
            ]
            part = any(_holds(context, wrap, model) for wrap in values.of_kind("ddp"))
            if uses and not part:
                text = (
                    f"{model.id} is trained beside a model in DDP and is in none: its weights drift from rank to rank"
                )
                related = ((next(iter(values.sites(wrapped[0], "ddp"))), "in DDP"), (uses[0], "called here"))
                yield Hit(model, text, "possible", severity="info", related=related)


#: gradients are averaged by hand, or by what wraps the optimizer
_REDUCES = re.compile(
    r"all_?reduce\w*\([^)]*grad|grad\w*\.(?:data\.)?div_|DistributedOptimizer|average_gradients|reduce_grad|sync_grad"
)


def _is_given(context: Context, call: ast.Call, optimizer: ast.Call) -> bool:
    """In the optimizer's arguments, or in a list or its `append` of the variable that it is given."""
    script, values = context.script, context.values
    if script.contains(optimizer, call):
        return True
    first = argument(optimizer, 0, "params")
    if not isinstance(first, ast.Name) or script.function_of(call) is not script.function_of(optimizer):
        return False
    statement = script.statement_of(call)
    if isinstance(statement, ast.Assign):
        return any(values.key(t) == values.key(first) for t in statement.targets)
    if isinstance(statement, ast.AugAssign):
        return values.key(statement.target) == values.key(first)
    called = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    adds = isinstance(called, ast.Attribute) and called.attr in ("append", "extend")
    return adds and isinstance(called, ast.Attribute) and values.key(called.value) == values.key(first)


def _holds(context: Context, wrap: ast.Call, model: ast.Name) -> bool:
    """`DDP(Both(encoder, head))`, or DDP of a variable that this was put into."""
    if model.id in names_in(wrap):
        return True
    return any(model.id in names_in(value) for a in wrap.args for value in context.values.bound(a))
