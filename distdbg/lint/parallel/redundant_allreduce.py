"""Gradients are averaged over all ranks after every micro-batch, where once a step would do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import ACCUMULATES, STEPS_BY_NAME, accumulations, by_itself
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
    found = False
    for one in accumulations(context) if context.distributed else ():
        found = True
        if not _in_unknown_context(context, one.backward):
            yield _hit(one.backward.top, wrapper, "every micro-batch averages all gradients over the ranks")
    yield from _by_an_accelerator(context)
    if not found:
        yield from _over_micro_batches(context, wrapper)
        yield from _in_a_train_step(context)
        yield from _in_a_branch(context)


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


def _over_micro_batches(context: Context, wrapper: str) -> Iterator[Hit]:
    """A loop over micro-batches of a wrapped model only goes backward: one reduction a step is enough."""
    for loop in context.script.all(*LOOPS) if wrapper and not context.frameworks else ():
        header = loop.test if isinstance(loop, ast.While) else loop.iter
        does = [e for e in context.loops.does(loop) if e.kind in ("backward", "zero", *STEPS)]
        back = [e for e in does if e.kind == "backward"]
        if not back or len(back) != len(does) or not any(ACCUMULATES.search(w) for w in names_in(header)):
            continue
        if not by_itself(context, back[0]) and not _in_unknown_context(context, back[0]):
            yield _hit(back[0].top, wrapper, "every micro-batch averages all gradients over the ranks")


def _in_a_train_step(context: Context) -> Iterator[Hit]:
    """A function that is given model and optimizer, goes backward in a loop and leaves the step to its caller."""
    for loop in context.script.all(*LOOPS):
        function = context.script.function_of(loop)
        if function is None or context.loops.kinds[loop] == "epoch":
            continue
        given = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
        if not given >= {"model", "optimizer"}:
            continue
        does = context.loops.does(loop)
        back = [e for e in does if e.kind == "backward"]
        if back and not any(e.kind in (*STEPS, "zero") for e in context.loops.does(function)):
            yield _hit(back[0].top, "", "each round of this loop averages all gradients over the ranks")


def _in_a_branch(context: Context) -> Iterator[Hit]:
    """`if accumulating: forward and backward` beside a branch that also steps."""
    script = context.script
    for node in script.all(ast.If):
        if not any(ACCUMULATES.search(w) for w in names_in(node.test)):
            continue
        does = context.loops.does(node)
        mine = [e for e in does if (node, True) in e.branches or any(script.contains(s, e.top) for s in node.body)]
        other = [e for e in does if e not in mine]
        back = [e for e in mine if e.kind == "backward"]
        if not back or not context.distributed or any(e.kind in STEPS for e in mine):
            continue
        otherwise = [script.call_names[c] for s in node.orelse for c in script.within(s, ast.Call)]
        if any(e.kind in STEPS for e in other) or any(map(STEPS_BY_NAME.search, otherwise)):
            yield _hit(back[0].top, "", "an accumulating backward pass averages all gradients over the ranks")
