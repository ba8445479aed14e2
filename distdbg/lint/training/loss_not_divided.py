"""Gradients of several micro-batches are added up, and nothing divides by their number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import ACCUMULATES, Accumulation, accumulations, by_a_number
from distdbg.lint.script.events import Events, carrier
from distdbg.lint.script.kept import LOSS
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.script import names_in

#: a sum is meant, or something else divides
UNLESS = re.compile(
    r"reduction\s*=\s*[\"']sum|multiply_grads|grads?\w*(?:\.data)?\.(?:div_|mul_)\(|_foreach_(?:div|mul)_|\bgrad\s*[/*]=|"
    r"scale_grad|normalize_grad|(?<!amp\.)scale_loss\(",
    re.IGNORECASE,
)
#: these divide by themselves
_DIVIDE_THEMSELVES = {"trainer", "deepspeed", "lightning"}

#: a value that is only read: for a log
_READ_ONLY = {"item", "detach", "tolist", "log"}
#: `masked_mean(loss, mask, loss_denominator)`
_IS_A_DENOMINATOR = re.compile(r"denominator|divisor|normali[sz]er", re.IGNORECASE)

REAL_MISTAKES = 12
#: without these words there is nothing to check
NEEDS = ({"backward("},)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & _DIVIDE_THEMSELVES:
        return
    for one in accumulations(context):
        if one.guard is None:
            repeats = _repeats(one.place)
            if not repeats or _is_given(context, one.place, repeats) or _is_of_all(context, one.place):
                continue
            related = ((one.place, "the step comes after these batches"),)
        elif by_a_number(context, one.guard.test) or any(
            ACCUMULATES.search(w) for w in _words(context, one.guard.test)
        ):
            related = ((one.guard, "the step comes every few batches"),)
        else:
            continue
        if _is_told_how_many(one) or any(_divides_in(context, place, one) for place in _places(context, one)):
            continue
        text = "gradients are added up over several batches, and the loss is not divided by their number"
        if Events.managed(one.backward) and not context.values.of_kind("accelerator"):
            text = f"{text}, if the accelerator is not told it"
            yield Hit(one.backward.top, text, "possible", severity="info", related=related)
        else:
            yield Hit(one.backward.top, text, related=related)


def _places(context: Context, one: Accumulation) -> Iterator[ast.AST]:
    """The loop or function of the backward pass, what it calls, and the callers of what is given the loss."""
    yield one.place
    yield from (function for function in context.loops.reached(one.place) if not for_evaluation(function.name))
    function = context.script.function_of(one.backward.call)
    kept = carrier(one.backward.call) if isinstance(one.backward.call, ast.Call) else None
    if function is not None and kept in {a.arg for a in function.args.args}:
        yield context.script.tree


def _divides_in(context: Context, place: ast.AST, one: Accumulation) -> bool:
    """A division that is not for a log only, and not by the number of batches since the last step."""
    counters = _counters(context, one.place)
    for node in context.script.within(place, ast.BinOp, ast.Call, ast.AugAssign):
        if _divides(node) and not _by_one_of(node, counters):
            words = names_in(context.script.statement_of(node))
            of_a_loss = any(LOSS.search(word) or ACCUMULATES.search(word) for word in words)
            if "backward" in words or (of_a_loss and not words & _READ_ONLY):
                return True
    return False


def _repeats(place: ast.AST) -> set[str]:
    """The words of `range(grad_accum_steps)`: a loop that is there to accumulate, and for nothing else."""
    match place:
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[number])):
            words = names_in(number) - {"self"}
            return words if any(ACCUMULATES.search(w) for w in words) else set()
    return set()


def _is_given(context: Context, place: ast.AST, repeats: set[str]) -> bool:
    """The number of batches is handed to what is called in the loop, which may divide."""
    given = (a for c in context.script.within(place, ast.Call) for a in (*c.args, *(k.value for k in c.keywords)))
    header = place.iter if isinstance(place, ast.For) else None
    return any(names_in(a) & repeats for a in given if header is None or not context.script.contains(header, a))


def _is_of_all(context: Context, place: ast.AST) -> bool:
    """`features[:j] + [mine] + features[j + 1:]`: each loss is made of all batches, each with gradients for one."""
    number = place.target.id if isinstance(place, ast.For) and isinstance(place.target, ast.Name) else None
    return any(number in names_in(one) for one in context.script.within(place, ast.Slice))


def _words(context: Context, test: ast.expr) -> set[str]:
    """Of the test, and of what its variable was made of."""
    operand = test.operand if isinstance(test, ast.UnaryOp) else test
    bound = context.values.bound(operand) if isinstance(operand, ast.Name) else []
    return names_in(test).union(*map(names_in, bound))


def _is_told_how_many(one: Accumulation) -> bool:
    """`run_batch(batch, num_batches_for_this_update)`: what goes backward knows by what it should divide."""
    top = one.backward.top
    given = top.args if isinstance(top, ast.Call) and top is not one.backward.call else []
    return any(re.search(r"num_batches|n_batches|divisor|accum", w) for a in given for w in names_in(a))


def _counters(context: Context, place: ast.AST) -> set[str]:
    """What counts the batches since the last step: it grows by one, and the place sets it back to zero."""
    grow, zeroed = set(), set()
    for node in context.script.within(place, ast.AugAssign, ast.Assign):
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.Constant(value=1)):
                grow.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=0)):
                zeroed.add(name)
    return grow & zeroed


def _by_one_of(node: ast.AST, counters: set[str]) -> bool:
    """`loss / n_so_far`: of the batches of a step each has another weight."""
    divisor = getattr(node, "right", None) or getattr(node, "value", None)
    return isinstance(divisor, ast.Name) and divisor.id in counters


def _words_of(given: list[ast.expr], named: list[ast.keyword]) -> set[str]:
    return {k.arg for k in named if k.arg}.union(*map(names_in, given), *(names_in(k.value) for k in named))


def _divides(node: ast.AST) -> bool:
    """A division, or a product with a factor that was one: `loss * scale`."""
    match node:
        case ast.BinOp(right=ast.JoinedStr() | ast.Constant(value=str())):
            return False  # a path
        case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return True
        case ast.Call(func=ast.Attribute(attr="div" | "divide" | "true_divide")):
            return True
        case ast.Call(args=given, keywords=named) if any(map(_IS_A_DENOMINATOR.search, _words_of(given, named))):
            return True
        case ast.BinOp(op=ast.Mult()) | ast.Call(func=ast.Attribute(attr="mul" | "multiply")):
            return any(re.search(r"accum|inv|scale|weight", w) for w in names_in(node))
    return False
