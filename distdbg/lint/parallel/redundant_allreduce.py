"""Gradients are averaged over all ranks after every micro-batch, where once a step would do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import ACCUMULATES, accumulations
from distdbg.lint.script.events import STEPS, Events, TrainingEvent
from distdbg.lint.script.script import FUNCTIONS, LOOPS, names_in

#: somebody holds the reduction back
UNLESS = re.compile(
    r"no_sync|require_backward_grad_sync|requires_gradient_sync|gradient_sync|accelerator\.accumulate\(|no_backward_sync|block_\w*sync|skip_\w*sync|"
    r"is_last_backward|set_is_last|block_backward_sync|GradBucket|(?:disable|delay)_allreduce"
)

REAL_MISTAKES = 14
#: without these words there is nothing to check
NEEDS = ({"backward("},)

#: first parts of the names of contexts that have nothing to do with gradients of other ranks
_KNOWN_CONTEXTS = {"torch", "contextlib", "nullcontext", "open", "tqdm", "autocast", "warnings", "time", "apex", "amp"}
#: words of others that may be no_sync under another name
_MAY_HOLD_BACK = re.compile(r"sync|accum|optim|ctx|context|cm$|model|ddp|strategy|manager|join|engine", re.IGNORECASE)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & {"lightning", "trainer", "deepspeed"}:
        return
    wrapper = next((kind for kind in ("ddp", "fsdp") if context.values.of_kind(kind)), "")
    for one in accumulations(context) if context.distributed else ():
        if not _in_unknown_context(context, one.backward):
            yield _hit(one.backward.top, wrapper, "every micro-batch averages all gradients over the ranks")
    yield from _by_an_accelerator(context)


def _in_unknown_context(context: Context, backward: TrainingEvent) -> bool:
    """Under a `with` of something that neither torch nor this file shows: it may be no_sync in other words."""
    for node in (backward.call, backward.top):
        for outer in context.script.above(node):
            if isinstance(outer, (ast.With, ast.AsyncWith)) and any(
                _unknown(context, i.context_expr) for i in outer.items
            ):
                return True
    return False


def _unknown(context: Context, manager: ast.expr, deepest: int = 3) -> bool:
    if context.values.sites(manager, "autocast"):
        return False
    if isinstance(manager, ast.IfExp):
        return any(_unknown(context, one, deepest) for one in (manager.body, manager.orelse))
    if not isinstance(manager, ast.Call):  # made elsewhere: `with ctx:`
        bound = context.values.bound(manager) if deepest else []
        return not bound or any(_unknown(context, one, deepest - 1) for one in bound)
    name = context.script.call_names[manager]
    if name.partition(".")[0] in _KNOWN_CONTEXTS or context.values.callees(manager):
        return False
    return _MAY_HOLD_BACK.search(name) is not None


def _hit(node: ast.AST, wrapper: str, text: str) -> Hit:
    if wrapper == "ddp":
        return Hit(node, text)
    if wrapper == "fsdp":
        why = "under FSDP gradients that are not reduced cost memory: whoever reduces each micro-batch may mean it"
        return Hit(node, f"{text}; {why}", severity="info")
    return Hit(node, f"{text}, if the model is wrapped in DDP or FSDP", "possible", severity="info")


def _by_an_accelerator(context: Context) -> Iterator[Hit]:
    """`for _ in range(grad_accum): accelerator.backward(loss / grad_accum)`, and the step behind: no `accumulate`."""
    script = context.script
    for loop in script.all(*LOOPS) if "accelerate" in context.frameworks else ():
        does = [e for e in context.loops.does(loop) if e.kind in ("backward", "zero", *STEPS)]
        if not does or not all(e.kind == "backward" and Events.managed(e) for e in does):
            continue
        header = loop.test if isinstance(loop, ast.While) else loop.iter
        place = next((o for o in script.above(loop) if isinstance(o, (*LOOPS, *FUNCTIONS))), None)
        if place is None or not any(ACCUMULATES.search(w) for w in names_in(header)):
            continue
        if any(e.kind in STEPS and script.begin[e.top] >= script.end[loop] for e in context.loops.does(place)):
            text = "accelerator.backward averages all gradients after every micro-batch: nothing here says accumulate"
            yield Hit(does[0].top, f"{text} or no_sync", "possible", severity="info")
