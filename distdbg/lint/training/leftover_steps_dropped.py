"""The last batches of an epoch are accumulated and never stepped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.findings import lint_entries
from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import ACCUMULATES, accumulations
from distdbg.lint.script.script import names_in

DOCS = lint_entries("leftover-steps-dropped")


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks:
        return
    for one in accumulations(context):
        guard = one.guard
        if guard is None or not isinstance(guard.test, ast.Compare) or not isinstance(one.loop, ast.For):
            continue
        words = names_in(guard.test)
        if not any(ACCUMULATES.search(w) for w in words) or any(re.search(r"last|final|end", w) for w in words):
            continue
        if context.loops.kinds[one.loop] != "batch" or _steps_behind(context, one.loop):
            continue
        yield Hit(
            "leftover-steps-dropped",
            "info",
            "likely",
            guard,
            "batches left over at the end of an epoch are accumulated and not stepped",
            related=((one.loop, "the loop over batches"),),
        )


def _steps_behind(context: Context, loop: ast.For) -> bool:
    end = context.script.end[loop]
    function = context.script.function_of(loop) or context.script.module_of(loop)
    return any(
        e.kind in ("step", "scaler_step") and context.script.begin[e.top] >= end for e in context.loops.does(function)
    )
