"""The last batches of an epoch are accumulated and never stepped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import ACCUMULATES, accumulations
from distdbg.lint.script.events import STEPS
from distdbg.lint.script.script import names_in

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = ({"backward("},)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks:
        return
    for one in accumulations(context):
        guard = one.guard
        if guard is None or not isinstance(guard.test, ast.Compare) or not isinstance(one.place, ast.For):
            continue
        words = names_in(guard.test)
        if not any(ACCUMULATES.search(w) for w in words) or any(re.search(r"last|final|end", w) for w in words):
            continue
        script, loop = context.script, one.place
        around = context.loops.does(script.function_of(loop) or script.module_of(loop))
        behind = any(e.kind in STEPS and script.begin[e.top] >= script.end[loop] for e in around)
        if behind or context.loops.kinds[loop] != "batch":
            continue
        yield Hit(
            guard,
            "batches left over at the end of an epoch are accumulated and not stepped",
            related=((loop, "the loop over batches"),),
        )
