"""A GradScaler whose loss is scaled while the optimizer steps past it, or that is never updated."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint._events import Event, Events
from distdbg.lint._rule import Context, Hit
from distdbg.model import FindingDoc

DOCS = (
    FindingDoc(
        id="scaler-misused",
        severity="error",
        title="a GradScaler that is used by halves",
        meaning="A scaled loss gives gradients some thousands of times too large. scaler.step undoes that and skips "
        "steps that overflowed; optimizer.step does neither. Without scaler.update the scale never adapts.",
        how_seen="On one way through the training loop, scaler.scale(loss).backward() is followed by optimizer.step(), "
        "or scaler.step by no scaler.update().",
        remedy="scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update().",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
)


def check(context: Context) -> Iterator[Hit]:
    for loop in context.loops.training:
        does = context.loops.does(loop)
        scaled = [e for e in does if e.kind == "backward" and Events.scaled(e)]
        if not scaled:
            continue
        yield from _past_the_scaler(does, scaled)
        steps = [e for e in does if e.kind == "scaler_step"]
        if steps and not any(e.kind == "update" for e in does) and not context.script.calls("update"):
            yield _hit(steps[0], "certain", "scaler.step without scaler.update: the scale never adapts", scaled[0])


def _past_the_scaler(does: list[Event], scaled: list[Event]) -> Iterator[Hit]:
    for step in (e for e in does if e.kind == "step"):
        before = [e for e in scaled if not e.excludes(step) and does.index(e) < does.index(step)]
        plain = [e for e in does if e.kind == "backward" and e not in scaled and not e.excludes(step)]
        mended = [e for e in does if e.kind in ("scaler_step", "unscale") and not e.excludes(step)]
        if before and not plain and not mended:
            yield _hit(step, "likely", "the loss is scaled, but the optimizer steps past the scaler", before[0])


def _hit(event: Event, sure: str, text: str, scaled: Event) -> Hit:
    related: tuple[tuple[ast.AST, str], ...] = ((scaled.call, "the loss is scaled"),)
    if sure == "certain":
        return Hit("scaler-misused", "error", "certain", event.call, text, related=related)
    return Hit("scaler-misused", "error", "likely", event.call, text, related=related)
