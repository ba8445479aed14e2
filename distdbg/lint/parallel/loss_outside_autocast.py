"""The loss is computed from an autocast model's output, outside of autocast: in sixteen bits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script import autocast as _autocast
from distdbg.lint.script.events import carrier
from distdbg.lint.script.script import argument, names_in

_FUNCTIONS = ("cross_entropy", "nll_loss")
_CLASSES = {"CrossEntropyLoss", "NLLLoss"}
_MODEL = re.compile(r"model|net|module|encoder|decoder|backbone|classifier|head|ddp|fsdp", re.IGNORECASE)
#: an output that one of these was called on, or a loss of it, is in float32 or is no logits any more
_CASTS = {"float", "double", "to", "type", "float32", "item", "detach"}

#: without these words there is nothing to check
NEEDS = ({"autocast"}, {"backward("})


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks:
        return  # they give outputs back in float32
    script = context.script
    backward = [c for c in context.events.of("backward") if isinstance(c, ast.Call)]
    losses = [c for c in script.all(ast.Call) if _is_loss(context, c)] if backward else []
    for block, site in _autocast.regions(context) if losses else ():
        for call in losses:
            outside = script.begin[call] >= script.end[block] and script.scopes[call] is script.scopes[block]
            if not outside or script.loops_around(call) != script.loops_around(block):
                continue
            output = _output(context, block, call)
            if output and _goes_backward(context, call, backward) and not _autocast.reaches(context, call):
                text = f"{output} comes out of autocast, and this loss of it is computed outside, in sixteen bits"
                yield Hit(call, text, related=((site, "autocast of the forward pass"),))


def _is_loss(context: Context, call: ast.Call) -> bool:
    """Cross-entropy of torch, as a function or as an object of this file."""
    name = context.script.call_names[call]
    if name.startswith("torch.nn.functional."):
        return name.rpartition(".")[2] in _FUNCTIONS
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    made = {context.script.call_names[s] for s in context.values.sites(call.func)}
    return bool(made) and all(n.startswith("torch.nn.") and n.rpartition(".")[2] in _CLASSES for n in made)


def _output(context: Context, block: ast.AST, loss: ast.Call) -> str:
    """The name of a model's output that the block makes and the loss takes as it is."""
    script = context.script
    given = argument(loss, 0, "input")
    words = names_in(given) if given is not None else set()
    if words & _CASTS:
        return ""
    made = {name for a in script.within(block, ast.Assign) if _of_model(context, a.value) for name in _names(a)}
    between = [a for a in script.all(ast.Assign) if script.end[block] <= script.begin[a] < script.begin[loss]]
    again = {name for a in between for name in _names(a)}
    return min((words & made) - again, default="")


def _names(assigned: ast.Assign) -> set[str]:
    return {n.id for t in assigned.targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _of_model(context: Context, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call) or isinstance(value.func, ast.Call):
        return False
    kinds = {context.values.kind(s) for s in context.values.sites(value.func)}
    last = context.script.last_names[value]
    return bool(kinds & {"module", "ddp", "fsdp", "instance"}) or _MODEL.search(last) is not None


def _goes_backward(context: Context, loss: ast.Call, backward: list[ast.Call]) -> bool:
    """`loss = cross_entropy(…)` with `loss.backward()` in the same function, or the call itself."""
    script = context.script
    here = [b for b in backward if script.scopes[b] is script.scopes[loss]]
    if any(script.contains(b, loss) for b in here):
        return True
    statement = script.statement_of(loss)
    names = _names(statement) if isinstance(statement, ast.Assign) else set()
    return any(carrier(b) in names for b in here)
