"""Find what one rank does before the others, which wait meanwhile."""

from __future__ import annotations

import ast
import re

from distdbg.lint.rule import Context
from distdbg.lint.script.script import last_word, names_in

#: calls at which ranks wait for each other: a wrapper sends rank 0's weights to the others
WAITS = re.compile(r"barrier|wait|sync|^prepare$|^DistributedDataParallel$|^DDP$", re.IGNORECASE)
_TURNS = re.compile(r"(?:^|_)first$|(?:^|_|[fF]ile)lock|Lock")


def in_turn(context: Context, call: ast.Call) -> bool:
    """One rank comes first: `with main_process_first():`, a lock, `if rank != 0: barrier()` above."""
    script = context.script
    withs = [outer for outer in script.above(call) if isinstance(outer, (ast.With, ast.AsyncWith))]
    if any(_TURNS.search(word) for one in withs for item in one.items for word in names_in(item.context_expr)):
        return True
    function = script.function_of(call)
    before = [
        one
        for one in script.within(function or script.module_of(call), ast.If)
        if script.begin[one] < script.begin[call] and context.ranks.asks(one.test) and all(map(_waits, one.body))
    ]
    return len(before) % 2 == 1  # the next one lets the other ranks go on


def _waits(statement: ast.stmt) -> bool:
    called = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(called, ast.Call) and WAITS.search(last_word(called.func)) is not None
