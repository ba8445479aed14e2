"""Gradients are clipped after the step that used them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import STEPS, TrainingEvent
from distdbg.lint.script.script import argument, names_in

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = ({"step("}, {"clip_grad_norm_(", "clip_grad_value_(", "clip_grad_norm("}, {"backward("})


def check(context: Context) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    loops = [*context.loops.training, *context.loops.of_kind("epoch")]
    for loop in loops:
        does = [e for e in context.loops.does(loop) if e.kind in ("backward", "clip", "zero", *STEPS)]
        for place, clip in enumerate(does):
            if clip.kind != "clip" or clip.call in seen or _measures(clip.call) or _keeps_result(context, clip):
                continue
            seen.add(clip.call)
            before = [e for e in does[:place] if not e.excludes(clip)]
            after = [e for e in does[place + 1 :] if not e.excludes(clip)]
            last = next((e for e in reversed(before) if e.kind in ("backward", *STEPS)), None)
            following = next((e for e in after if e.kind != "clip"), None)
            if last is None or last.kind not in STEPS or not any(e.kind == "backward" for e in before):
                continue
            if following is None or following.kind in ("backward", "zero"):
                text = "gradients are clipped after the optimizer has stepped: the step used them as they were"
                yield Hit(clip.call, text, related=((last.call, "the step"),))


def _measures(call: ast.AST) -> bool:
    """`clip_grad_norm_(parameters, inf)`: it only tells how large the gradients are."""
    most = argument(call, 1, "max_norm") if isinstance(call, ast.Call) else None
    return most is None or "inf" in names_in(most) or (isinstance(most, ast.Constant) and most.value is None)


def _keeps_result(context: Context, clip: TrainingEvent) -> bool:
    """The norm is logged, and that may be all that is wanted."""
    return not isinstance(context.script.parents.get(clip.call), ast.Expr)
