"""Asynchronous operations whose handle is dropped, so that nothing can wait for their result."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.evidence.ops import COLLECTIVE, OPERATIONS, RECEIVE, SEND, of_kind
from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, is_constant, names_in

_COLLECTIVES = {op.name for op in OPERATIONS if op.kind == COLLECTIVE and not op.of_objects}
#: these are asynchronous without being asked
_TRANSFERS = {name for name in of_kind(SEND, RECEIVE) if name.startswith("i")}

#: without these words there is nothing to check
NEEDS = (_COLLECTIVES | _TRANSFERS, re.compile(rf"^async_op$|^(?:{'|'.join(sorted(_TRANSFERS))})\($"))
#: its end waits for all that was begun within it
_COALESCES = "coalescing"


def check(context: Context) -> Iterator[Hit]:
    for call in context.script.calls(*_COLLECTIVES, *_TRANSFERS):
        last = context.script.last_names[call]
        begun = last in _TRANSFERS or is_constant(argument(call, -1, "async_op"), value=True)
        torchs = context.script.call_names[call].startswith("torch.distributed.")
        if begun and torchs and _is_dropped(context, call) and not _coalesced(context, call):
            yield Hit(call, f"the handle of {last} is dropped: nothing waits until its tensors may be used")


def _is_dropped(context: Context, call: ast.Call) -> bool:
    statement = context.script.statement_of(call)
    return isinstance(statement, ast.Expr) and statement.value is call


def _coalesced(context: Context, call: ast.Call) -> bool:
    withs = (outer for outer in context.script.above(call) if isinstance(outer, (ast.With, ast.AsyncWith)))
    return any(_COALESCES in name for one in withs for item in one.items for name in names_in(item.context_expr))
