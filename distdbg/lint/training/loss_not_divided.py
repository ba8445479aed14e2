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
from distdbg.lint.script.script import Function, names_in

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
_HOPS = 4
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
        if _is_divided(context, one) or _comes_divided(context, one) or _is_told_how_many(one):
            continue
        text = "gradients are added up over several batches, and the loss is not divided by their number"
        if Events.managed(one.backward) and not context.values.of_kind("accelerator"):
            text = f"{text}, if the accelerator is not told it"
        elif not _divides_elsewhere(context, one):
            yield Hit(one.backward.top, text, related=related)
            continue
        yield Hit(one.backward.top, text, "possible", severity="info", related=related)


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


def _is_divided(context: Context, one: Accumulation) -> bool:
    """By a division on the way of the loss to where it goes backward, or by the number in a function that is called."""
    script, call = context.script, one.backward.call
    kept = carrier(call) or _attribute(call) if isinstance(call, ast.Call) else None
    counters = _counters(context, one.place)
    way = _way_of(context, one, kept) if kept is not None else None
    for node in script.within(one.place, ast.BinOp, ast.Call, ast.AugAssign):
        if _divides(node) and not _by_one_of(node, counters) and (way is None or _is_on_the_way(context, node, way)):
            return True
    for place in context.loops.reached(one.place):
        if not for_evaluation(place.name) and _divides_in(context, place):
            return True
    return False


def _divides_in(context: Context, place: Function) -> bool:
    """A function divides by the number of batches, or divides what goes backward in it."""
    back = [c for c in context.script.within(place, ast.Call) if context.events.kind(c) == "backward"]
    carried = {kept for c in back if (kept := carrier(c)) is not None}
    for node in context.script.within(place, ast.BinOp, ast.Call, ast.AugAssign):
        if not _divides(node):
            continue
        by = getattr(node, "right", None) or getattr(node, "value", None) or node
        if any(ACCUMULATES.search(w) for w in names_in(by)) or (back and _is_on_the_way(context, node, carried)):
            return True
    return False


def _way_of(context: Context, one: Accumulation, kept: str) -> set[str]:
    """The names that what goes backward is made of, in the code around it."""
    script = context.script
    place = script.function_of(one.backward.call) or one.place
    assigned = [a for a in script.within(place, ast.Assign, ast.AugAssign) if not names_in(a.value) & _READ_ONLY]
    names = {kept}
    for _ in range(_HOPS):
        before = len(names)
        for a in assigned:
            targets = a.targets if isinstance(a, ast.Assign) else [a.target]
            if any(isinstance(t, ast.Name) and t.id in names for t in targets):
                names |= {n.id for n in script.within(a.value, ast.Name) if LOSS.search(n.id)}
        if len(names) == before:
            break
    return names


def _is_on_the_way(context: Context, node: ast.AST, way: set[str]) -> bool:
    words = names_in(context.script.statement_of(node))
    return "backward" in words or (not words & _READ_ONLY and bool(_targets(context, node) & way))


def _divides_elsewhere(context: Context, one: Accumulation) -> bool:
    """A loss is divided beside its way, for a log, or something in a function that is called: who knows what."""
    script = context.script
    beside = (n for n in script.within(one.place, ast.BinOp, ast.Call, ast.AugAssign) if _divides(n))
    if any("loss" in w.lower() for node in beside for w in _targets(context, node)):
        return True
    called = (f for f in context.loops.reached(one.place) if not for_evaluation(f.name))
    return any(_divides(n) for f in called for n in script.within(f, ast.BinOp, ast.Call, ast.AugAssign))


def _targets(context: Context, node: ast.AST) -> set[str]:
    """What the statement of a node assigns to."""
    statement = context.script.statement_of(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return set().union(*(names_in(t) for t in targets if t is not None))


def _comes_divided(context: Context, one: Accumulation) -> bool:
    """What goes backward is a parameter, and some function of the file divides a loss by the number of batches."""
    script, call = context.script, one.backward.call
    kept = carrier(call) if isinstance(call, ast.Call) else None
    function = script.function_of(call)
    if kept is None or function is None or kept not in {a.arg for a in function.args.args}:
        return False
    divisions = (n for n in script.all(ast.BinOp, ast.AugAssign) if isinstance(n.op, ast.Div))
    divisors = (getattr(n, "right", None) or n.value for n in divisions)
    return any(ACCUMULATES.search(w) for divisor in divisors for w in names_in(divisor))


def _is_told_how_many(one: Accumulation) -> bool:
    """`run_batch(batch, num_batches_for_this_update)`: what goes backward knows by what it should divide."""
    top = one.backward.top
    given = top.args if isinstance(top, ast.Call) and top is not one.backward.call else []
    return any(re.search(r"num_batches|n_batches|divisor|accum", w) for a in given for w in names_in(a))


def _attribute(call: ast.Call) -> str | None:
    """`loss` of `result.loss.backward()`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner.attr if isinstance(owner, ast.Attribute) else None


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
