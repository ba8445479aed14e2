"""Weights that only some ranks load or set once DDP has made all ranks equal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit

#: without these words there is nothing to check
NEEDS = ({"load_state_dict("}, {"DistributedDataParallel", "DDP"})
#: something makes all ranks equal again
UNLESS = re.compile(r"broadcast|sync_params|_sync_")


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    if context.frameworks:
        return
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
