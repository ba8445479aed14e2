"""A state_dict that is saved from the wrapper: every key begins with `module.`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit

#: without these words there is nothing to check
NEEDS = ({"state_dict("}, {"DistributedDataParallel", "DDP"}, {"save("})


def check(context: Context) -> Iterator[Hit]:
    script, values = context.script, context.values
    if not values.of_kind("ddp") or re.search(r"[\"']module\.|_orig_mod\.|consume_prefix", script.text):
        return
    saves = [c for c in script.calls("save") if script.call_names[c] == "torch.save"]
    for call in script.calls("state_dict"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(owner, (ast.Name, ast.Attribute)) or getattr(owner, "attr", "") == "module":
            continue
        if not _is_the_wrapper(context, owner, call) or not any(_reaches(context, call, save) for save in saves):
            continue
        yield Hit(
            call,
            "this saves the wrapper's state_dict: every key begins with `module.`",
            related=((next(iter(values.sites(owner, "ddp"))), "wrapped here"),),
        )


def _is_the_wrapper(context: Context, owner: ast.expr, call: ast.Call) -> bool:
    """Bound to nothing but the wrapper, or bound to it above in the same function."""
    bound = context.values.assignments(owner)
    wraps = [a for a in bound if isinstance(a.value, ast.Call) and context.values.kind(a.value) == "ddp"]
    if not wraps or any(isinstance(a.value, ast.Attribute) for a in bound):
        return False
    unconditional = [a for a in wraps if not any(isinstance(o, ast.If) for o in context.script.above(a))]
    return bool(unconditional) and context.script.begin[unconditional[0]] < context.script.begin[call]


def _reaches(context: Context, state: ast.Call, save: ast.Call) -> bool:
    """Inside the save's arguments, or in the variable that it is given."""
    if context.script.contains(save, state):
        return True
    statement = context.script.statement_of(state)
    first = save.args[0] if save.args else None
    return (
        isinstance(statement, ast.Assign)
        and first is not None
        and any(context.values.key(t) == context.values.key(first) is not None for t in statement.targets)
    )
