"""Gradients are clipped while they still carry the scaler's factor."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit, Insert
from distdbg.lint.script.events import Events, Kind, TrainingEvent
from distdbg.lint.script.insertions import can_leave, insert_above
from distdbg.lint.script.script import FUNCTIONS, argument, is_constant, names_in

REAL_MISTAKES = 7
#: without these words there is nothing to check
NEEDS = ({"step("}, {"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"})
FIXES = True


def check(context: Context) -> Iterator[Hit]:
    if not any(e for e in context.script.calls("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")):
        return
    seen: set[ast.AST] = set()
    unscaling = _Unscaling(context)
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
                    fix=unscaling.fix_of(place, clip, step.call),
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


class _Unscaling:
    """Finds one place for `scaler.unscale_(optimizer)` for each step of a scaler, however many clips precede it."""

    def __init__(self, context: Context) -> None:
        self._context, self._script = context, context.script
        self._by_step: dict[ast.AST, tuple[Insert, list[ast.stmt]] | None] = {}

    def fix_of(self, place: ast.AST, clip: TrainingEvent, step: ast.AST) -> Insert | None:
        """The insertion that corrects this clip; None if the corrected program might raise or clip as before."""
        if step not in self._by_step:
            self._by_step[step] = self._insertion(self._script.function_of(step) or place, step)
        insertion, covered = self._by_step[step] or (None, [])
        ways = (clip.call, clip.top)
        return insertion if any(self._script.contains(s, way) for s in covered for way in ways) else None

    def _insertion(self, place: ast.AST, step: ast.AST) -> tuple[Insert, list[ast.stmt]] | None:
        """The insertion, and the statements from there to the step."""
        statement = self._script.statement_of(step)
        match statement:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name() | ast.Attribute() as scaler),
                    args=[ast.Name() | ast.Attribute() as optimizer],
                    keywords=[],
                ) as call
            ) if call is step and self._needs_no_more(scaler, optimizer):
                pass
            case _:
                return None
        block = self._script.block_of(statement)
        own = block.index(statement)
        kinds = self._kinds_by_statement(place, block)
        backward = max((n for n in range(own) if "backward" in kinds[n]), default=-1)
        first = next((n for n in range(backward + 1, own) if "clip" in kinds[n]), None)
        update = f"{self._script.source(scaler)}.update()"
        updates = (n for n in range(own + 1, len(block)) if self._script.source(block[n]) == update)
        last = next(updates, None)
        if first is None or last is None or self._other_step(kinds, first, own, last):
            return None
        between = block[first:last]
        names = {
            name.id for s in between for name in self._script.within(s, ast.Name) if isinstance(name.ctx, ast.Store)
        }
        if (
            can_leave(self._script, between)
            or names & (names_in(scaler) | names_in(optimizer))
            or self._is_caught(step)
        ):
            return None  # the update is left out, and the next unscale_ raises
        if any(event.kind == "unscale" for way in self._scopes(step) for event in self._context.loops.does(way)):
            return None
        text = f"{self._script.source(scaler)}.unscale_({self._script.source(optimizer)})"
        insertion = insert_above(self._script, block[first], text)
        return (insertion, block[first:own]) if insertion is not None else None

    def _needs_no_more(self, scaler: ast.expr, optimizer: ast.expr) -> bool:
        """A scaler of torch, and no fused optimizer: its step also takes float16 gradients, which unscale_ refuses."""
        made = self._context.values.sites(optimizer, "optimizer")
        fused = (argument(site, -1, "fused") for site in made)
        return self._context.roles.scaler(scaler).of_torch and all(f is None or is_constant(f, False) for f in fused)

    def _kinds_by_statement(self, place: ast.AST, block: list[ast.stmt]) -> list[set[Kind]]:
        """What each statement of the block does, by kinds of events."""
        begins = [self._script.begin[statement] for statement in block]
        kinds: list[set[Kind]] = [set() for _ in block]
        for event in self._context.loops.does(place):
            number = bisect_right(begins, self._script.begin[event.top]) - 1
            if number >= 0 and self._script.contains(block[number], event.top):
                kinds[number].add(event.kind)
        return kinds

    @staticmethod
    def _other_step(kinds: list[set[Kind]], first: int, own: int, last: int) -> bool:
        """Does another optimizer step for the same backward pass? Then the clip may be of its parameters."""
        for number in range(first, last + 1):
            if number > own and "backward" in kinds[number]:
                return False
            if number != own and kinds[number] & {"step", "scaler_step"}:
                return True
        return False

    def _is_caught(self, step: ast.AST) -> bool:
        """May a handler in a loop go on after an exception between the insertion and the update?"""
        return any(
            getattr(outer, "handlers", None) and self._script.loops_around(outer)
            for way in self._context.values.ways_to(step)
            for outer in self._script.above(way)
        )

    def _scopes(self, step: ast.AST) -> list[ast.AST]:
        """The functions through which the step is reached, or the files of those calls that are in no function."""
        ways = self._context.values.ways_to(step)
        return list(dict.fromkeys(self._script.function_of(way) or self._script.module_of(way) for way in ways))
