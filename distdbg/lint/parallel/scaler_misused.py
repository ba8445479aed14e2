"""A GradScaler whose loss is scaled while the optimizer steps past it, or that is never updated."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script import autocast as _autocast
from distdbg.lint.script.events import Events, TrainingEvent, carrier
from distdbg.lint.script.script import argument

_SCALES = re.compile(r"scaler|loss_scal|scale_loss|amp_handle", re.IGNORECASE)

#: without these words there is nothing to check
NEEDS = ({"backward("}, re.compile(r"scale|autocast"))


def check(context: Context) -> Iterator[Hit]:
    for loop in context.loops.training:
        does = context.loops.does(loop)
        scaled = [e for e in does if e.kind == "backward" and Events.scaled(e)]
        if not scaled:
            continue
        if not context.script.calls("get_scale"):  # else it may be divided by
            yield from _past_the_scaler(does, scaled)
        steps = [e for e in does if e.kind == "scaler_step"]
        if steps and not any(e.kind == "update" for e in does) and not context.script.calls("update"):
            text = "scaler.step without scaler.update: the scale never adapts"
            yield Hit(steps[0].call, text, "certain", related=((scaled[0].call, "the loss is scaled"),))

    yield from _of_the_wrong_type(context)


def _of_the_wrong_type(context: Context) -> Iterator[Hit]:
    """float16 without a scaler, bfloat16 with one, where the dtype and the scaler's use are certain."""
    regions = list(_autocast.regions(context))
    types = {_autocast.dtype(context, site) for _, site in regions}
    scalers = context.values.of_kind("scaler")
    backward = [n for n in context.events.of("backward") if isinstance(n, ast.Call)]
    if len(types) != 1 or context.frameworks:
        return
    block, site = regions[0]
    related: tuple[tuple[ast.AST, str], ...] = ((site, "autocast"),)
    if types == {"bfloat16"} and len(scalers) == 1 and argument(scalers[0], -1, "enabled") is None:
        if any(Events.scaled(TrainingEvent("backward", b, b, ())) for b in backward):
            text = "bfloat16 has the range of float32: this scaler only costs time, and skips steps"
            yield Hit(scalers[0], text, severity="info", related=related)
    elif types == {"float16"} and not any(map(_SCALES.search, _words(context))):
        for call in backward:
            same = context.script.scopes[call] is context.script.scopes[block]
            if same and _assigned_in(context, block, carrier(call)):
                text = "float16 autocast without a GradScaler: small gradients become zero"
                yield Hit(call, text, severity="warning", related=related)
                return


def _words(context: Context) -> set[str]:
    script = context.script
    return {n.id for n in script.all(ast.Name)} | {a.attr for a in script.all(ast.Attribute)} | set(script.names)


def _assigned_in(context: Context, block: ast.AST, name: str | None) -> bool:
    """Is what goes backward computed under this autocast?"""
    targets = [t for a in context.script.within(block, ast.Assign) for t in a.targets]
    return name is not None and any(isinstance(t, ast.Name) and t.id == name for t in targets)


def _past_the_scaler(does: list[TrainingEvent], scaled: list[TrainingEvent]) -> Iterator[Hit]:
    for step in (e for e in does if e.kind == "step"):
        before = [e for e in scaled if not e.excludes(step) and does.index(e) < does.index(step)]
        plain = [e for e in does if e.kind == "backward" and e not in scaled and not e.excludes(step)]
        mended = [e for e in does if e.kind in ("scaler_step", "unscale") and not e.excludes(step)]
        if before and not plain and not mended:
            text = "the loss is scaled, but the optimizer steps past the scaler"
            yield Hit(step.call, text, related=((before[0].call, "the loss is scaled"),))
