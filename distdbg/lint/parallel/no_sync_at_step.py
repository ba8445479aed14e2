"""no_sync holds for the batch whose gradients are stepped: every rank steps with gradients of its own."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import STEPS
from distdbg.lint.script.origins import with_values
from distdbg.lint.script.script import FUNCTIONS, LOOPS, Loop, argument, last_word, names_in

REAL_MISTAKES = 4
NEEDS = ({"no_sync", "no_backward_sync", "require_backward_grad_sync"}, {"step"})
_HOLD_BACK = ("no_sync", "no_backward_sync")
#: what each name and each length is taken for, but for the counter: so many rounds make one step
_ROUNDS = 4
_OPERATIONS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def check(context: Context) -> Iterator[Hit]:
    yield from _set_behind_the_forward_pass(context)
    script = context.script
    counted = {last_word(added.target) for added in script.all(ast.AugAssign)}
    for held in script.all(ast.Attribute):
        loop = next(iter(script.loops_around(held)), None) if held.attr in _HOLD_BACK else None
        counter, first = _counter(loop)
        tests = list(_tests(context, held)) if counter and counter not in counted else []
        if loop is None or not any(counter in _words(context, test) for test, _ in tests):
            continue
        steps = [event for event in context.loops.does(loop) if event.kind in STEPS]
        ways = [[(n.test, so) for n, so in e.branches if isinstance(n, (ast.If, ast.IfExp))] for e in steps]
        for number in range(first, first + _ROUNDS):
            last = not steps and number == first + _ROUNDS - 1 and _steps_behind(context, loop)
            names = {counter: number}
            if _hold(context, tests, names) and (last or any(_hold(context, way, names) for way in ways)):
                text = "no_sync holds for the batch that the optimizer steps with: its gradients are not averaged"
                yield Hit(held, text, related=tuple((step.call, "the step") for step in steps[:1]))
                break


def _counter(loop: Loop | None) -> tuple[str, int]:
    """`i` of `for i, x in enumerate(xs)` and of `for i in range(n)`, and its first number."""
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call(func=ast.Name(id="enumerate")) as call
        ):
            start = argument(call, 1, "start")
            return name, start.value if isinstance(start, ast.Constant) and isinstance(start.value, int) else 0
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[_])):
            return name, 0
    return "", 0


def _tests(context: Context, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The tests around a node in its function, and how each of them ends where the node runs."""
    below = node
    for outer in context.script.above(node):
        if isinstance(outer, FUNCTIONS):
            return
        if isinstance(outer, (ast.If, ast.IfExp)) and below is not outer.test:
            yield outer.test, below is outer.body if isinstance(outer, ast.IfExp) else below in outer.body
        below = outer


def _words(context: Context, test: ast.expr) -> set[str]:
    return set().union(*map(names_in, with_values(context, test)))


def _hold(context: Context, tests: list[tuple[ast.expr, bool]], names: Mapping[str, int]) -> bool:
    return all(bool(_value(context, test, names)) == holds for test, holds in tests)


def _value(context: Context, node: ast.expr, names: Mapping[str, int]) -> int:  # noqa: PLR0911 -- one line a form
    """What an expression is worth in one round."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name() | ast.Attribute() if last_word(node) in names:
            return names[last_word(node)]
        case ast.Name() if len(bound := context.values.bound(node)) == 1 and not isinstance(bound[0], ast.Name):
            return _value(context, bound[0], names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(context, operand, names)
        case ast.BoolOp(op=op, values=values):
            parts = [bool(_value(context, value, names)) for value in values]
            return all(parts) if isinstance(op, ast.And) else any(parts)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            by = _value(context, right, names)
            known = type(op) in _OPERATIONS and not (isinstance(op, ast.Mod) and not by)
            return _OPERATIONS[type(op)](_value(context, left, names), by) if known else _ROUNDS
    return _ROUNDS


def _steps_behind(context: Context, loop: Loop) -> bool:
    """A step comes after the loop over the micro-batches, in the function or loop around it."""
    script = context.script
    place = next((o for o in script.above(loop) if isinstance(o, (*LOOPS, *FUNCTIONS))), None)
    events = context.loops.does(place) if place is not None else []
    return any(e.kind in STEPS and script.begin[e.top] >= script.end[loop] for e in events)


def _set_behind_the_forward_pass(context: Context) -> Iterator[Hit]:
    """`loss = model(x)`, then `model.require_backward_grad_sync = last`: DDP's forward pass reads it, too."""
    script, begin = context.script, context.script.begin
    for assigned in script.all(ast.Assign):
        target, loop = assigned.targets[0], next(iter(script.loops_around(assigned)), None)
        if loop is None or last_word(target) != "require_backward_grad_sync" or not isinstance(target, ast.Attribute):
            continue
        key = context.values.key(target.value)
        forwards = [c for c in script.within(loop, ast.Call) if context.values.key(c.func) == key is not None]
        back = [begin[c] for c in script.within(loop, ast.Call) if script.last_names[c] == "backward"]
        between = forwards and back and max(map(begin.__getitem__, forwards)) < begin[assigned] < min(back)
        if between and not isinstance(assigned.value, ast.Constant):
            text = "this is set behind the forward pass, which reads it, too: at the step gradients are not averaged"
            yield Hit(assigned, text, related=((forwards[0], "the forward pass"),))
