"""The last batches of an epoch are accumulated and never stepped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint._accumulation import ACCUMULATES, accumulations
from distdbg.lint._rule import Context, Hit
from distdbg.lint._script import names_in
from distdbg.model import FindingDoc

DOCS = (
    FindingDoc(
        id="leftover-steps-dropped",
        severity="info",
        title="the last batches of an epoch are never stepped",
        meaning="Where the number of batches is no multiple of the accumulation, the gradients of the last ones are "
        "thrown away, or spill into the next epoch.",
        how_seen="The step stands under `(i + 1) % n == 0` alone, and nothing steps at the end of the loader.",
        remedy="Step as well at the last batch: `or i + 1 == len(loader)`.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
    ),
)


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
