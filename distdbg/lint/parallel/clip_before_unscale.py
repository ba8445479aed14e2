"""Gradients are clipped while they still carry the scaler's factor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit, Insert
from distdbg.lint.script.events import Events, TrainingEvent
from distdbg.lint.script.script import FUNCTIONS

#: without these words there is nothing to check
NEEDS = ({"step("}, {"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"})
FIXES = True


def check(context: Context) -> Iterator[Hit]:
    if not any(e for e in context.script.calls("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")):
        return
    seen: set[ast.AST] = set()
    for place in (*context.loops.training, *context.script.all(*FUNCTIONS)):
        does = context.loops.does(place)
        for clip in (e for e in does if e.kind == "clip" and e.call not in seen):
            step = _step_after(does, clip) or _step_of_a_method(context, place, does, clip)
            if step is not None and not any(e.kind == "unscale" and not e.excludes(clip) for e in does):
                seen.add(clip.call)
                yield Hit(
                    clip.call,
                    "gradients are clipped here while they still carry the GradScaler's factor",
                    "certain" if clip.call is clip.top and _backward(does) else "likely",
                    related=((step.call, "the step of the scaler"),),
                    fix=_fix(context, clip.call, step.call),
                )


def _step_after(does: list[TrainingEvent], clip: TrainingEvent) -> TrainingEvent | None:
    """The scaler's step that follows, where a scaled backward pass went before on the same way."""
    place = does.index(clip)
    before = [e for e in does[:place] if e.kind == "backward" and Events.scaled(e) and not e.excludes(clip)]
    others = [e for e in does[:place] if e.kind == "backward" and not Events.scaled(e) and not e.excludes(clip)]
    plain = [e for e in others if not all(map(e.excludes, before))]  # in the other branch it runs without the scaler
    after = [e for e in does[place:] if e.kind == "scaler_step" and not e.excludes(clip)]
    return after[0] if before and not plain and after else None


def _backward(does: list[TrainingEvent]) -> bool:
    return any(e.kind == "backward" for e in does)


def _step_of_a_method(
    context: Context, place: ast.AST, does: list[TrainingEvent], clip: TrainingEvent
) -> TrainingEvent | None:
    """The scaler's step in a function that only clips and steps, of a file that never unscales."""
    if not isinstance(place, FUNCTIONS) or _backward(does) or context.script.calls("unscale_") or context.frameworks:
        return None
    if context.values.callers.get(place):
        return None  # judged with the backward pass of its caller
    after = [e for e in does[does.index(clip) :] if e.kind == "scaler_step" and not e.excludes(clip)]
    return next((e for e in after if e.receiver is not None and context.roles.scaler(e.receiver)), None)


def _fix(context: Context, clip: ast.AST, step: ast.AST) -> Insert | None:
    """Only where scaler.step(optimizer) follows in the same block, and both are plain names."""
    script = context.script
    statement, after = script.statement_of(clip), script.statement_of(step)
    same = script.parents[statement] is script.parents[after]
    if not same or not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(after, ast.Expr):
        return None
    before = script.file_of(statement).lines[statement.lineno - 1][: statement.col_offset]
    match after.value:
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as scaler), args=[one], keywords=[]):
            if isinstance(one, (ast.Name, ast.Attribute)) and not before.strip():
                return Insert(statement.lineno, f"{script.source(scaler)}.unscale_({script.source(one)})")
    return None
