"""no_sync holds for the batch whose gradients are stepped: every rank steps with gradients of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import STEPS
from distdbg.lint.script.script import FUNCTIONS, LOOPS, last_word

REAL_MISTAKES = 4
#: without these words there is nothing to check
NEEDS = ({"no_sync", "no_backward_sync", "require_backward_grad_sync"}, {"step"})
_HOLD_BACK = ("no_sync", "no_backward_sync")


@dataclass(frozen=True)
class _Turn:
    """Which rounds a test picks: those where `counter + offset` is a multiple of `every`, or all others.

    `every` is "" for the last round of a loop.
    """

    counter: str
    offset: int
    every: str
    picked: bool

    def same_count(self, other: _Turn) -> bool:
        return (self.counter, self.every) == (other.counter, other.every)


def check(context: Context) -> Iterator[Hit]:
    yield from _set_behind_the_forward_pass(context)
    counted = {last_word(added.target) for added in context.script.all(ast.AugAssign)}
    steps: list[tuple[ast.AST, _Turn]] | None = None
    for held in context.script.all(ast.Attribute):
        turns = _turns(context, held) if held.attr in _HOLD_BACK else []
        if not turns or any(turn.counter in counted for turn in turns):
            continue
        if not any(turn.every for turn in turns):
            if all(turn.picked for turn in turns) and _steps_behind(context, held):
                yield Hit(held, "no_sync holds for the last micro-batch: gradients of the ranks are not averaged")
            continue
        steps = _steps(context) if steps is None else steps
        mine = [(node, step) for node, step in steps if any(step.same_count(turn) for turn in turns)]
        if mine and all(_held_at(turn, step) for turn in turns for _, step in mine):
            text = "no_sync holds for the batch that the optimizer steps with: its gradients are not averaged"
            yield Hit(held, text, related=((mine[0][0], "the step"),))


def _held_at(held: _Turn, step: _Turn) -> bool:
    """Does no_sync hold where the step comes?"""
    return step.picked and held.picked == (held.offset == step.offset)


def _steps(context: Context) -> list[tuple[ast.AST, _Turn]]:
    return [(call, turn) for call in context.events.of(*STEPS) for turn in _turns(context, call) if turn.every]


def _turns(context: Context, node: ast.AST) -> list[_Turn]:
    """What the tests around a node say about the rounds in which it runs."""
    found: list[_Turn] = []
    below = node
    for outer in context.script.above(node):
        if isinstance(outer, FUNCTIONS):
            break
        if isinstance(outer, (ast.If, ast.IfExp)) and below is not outer.test:
            behind = below is outer.body if isinstance(outer, ast.IfExp) else below in outer.body
            turns = (_turn(context, *part) for part in _parts(context, outer.test, holds=behind))
            found += [turn for turn in turns if turn is not None]
        below = outer
    return found


def _parts(context: Context, test: ast.expr, *, holds: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Each part of a test, and its answer: names stand for what they are bound to."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(context, test.operand, holds=not holds)
    elif isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(context, part, holds=holds)
    elif isinstance(test, ast.Name):
        bound = context.values.bound(test)
        if len(bound) == 1 and not isinstance(bound[0], ast.Name):
            yield from _parts(context, bound[0], holds=holds)
    else:
        yield test, holds


def _turn(context: Context, test: ast.expr, holds: bool) -> _Turn | None:
    match test:
        case ast.BinOp(op=ast.Mod()):
            return _remainder(test, picked=not holds)
        case ast.Compare(left=ast.BinOp(op=ast.Mod()) as left, ops=[op], comparators=[ast.Constant(value=0)]):
            equal = isinstance(op, ast.Eq)
            return _remainder(left, picked=equal is holds) if equal or isinstance(op, (ast.NotEq, ast.Gt)) else None
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.Lt() as op], comparators=[right]):
            return _last(context, left, right, picked=isinstance(op, ast.Eq) is holds)
    return None


def _remainder(node: ast.BinOp, *, picked: bool) -> _Turn | None:
    counter, plus = _plus(node.left)
    every = str(node.right.value) if isinstance(node.right, ast.Constant) else last_word(node.right)
    return _Turn(counter, plus, every, picked) if counter and every else None


def _plus(node: ast.expr) -> tuple[str, int]:
    """`i`: i, 0. `i + 1`: i, 1."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=int(number))):
            return last_word(left), number
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int(number))):
            return last_word(left), -number
        case ast.Name() | ast.Attribute():
            return last_word(node), 0
    return "", 0


def _last(context: Context, left: ast.expr, right: ast.expr, *, picked: bool) -> _Turn | None:
    """`i == len(batches) - 1` of the loop that counts with `i`."""
    counter, plus = _plus(left)
    match right:
        case ast.BinOp(left=length, op=ast.Sub(), right=ast.Constant(value=1)):
            plus += 1
        case _:
            length = right
    of_a_loop = next((o for o in context.script.loops_around(left) if counter in _counts(o)), None)
    if of_a_loop is None or plus != 1 or isinstance(length, ast.Constant):
        return None
    return _Turn(counter, 1, "", picked) if ast.dump(length) in _lengths(of_a_loop) else None


def _counts(loop: ast.AST) -> set[str]:
    """The names that a loop counts its rounds with: `i` of `for i, x in enumerate(xs)`, `for i in range(n)`."""
    match loop:
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call(func=ast.Name(id="enumerate"))):
            return {name}
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[_])):
            return {name}
    return set()


def _lengths(loop: ast.AST) -> set[str]:
    """What the number of its rounds is written as."""
    match loop:
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[number])):
            return {ast.dump(number)}
        case ast.For(iter=ast.Call(func=ast.Name(id="enumerate"), args=[items])):
            return {ast.dump(ast.Call(func=ast.Name(id="len", ctx=ast.Load()), args=[items], keywords=[]))}
    return set()


def _steps_behind(context: Context, held: ast.AST) -> bool:
    """A step comes after the loop over the micro-batches, in the function or loop around it."""
    loop = next(iter(context.script.loops_around(held)), None)
    place = next((o for o in context.script.above(loop) if isinstance(o, (*LOOPS, *FUNCTIONS))), None) if loop else None
    if loop is None or place is None or any(e.kind in STEPS for e in context.loops.does(loop)):
        return False
    return any(
        e.kind in STEPS and context.script.begin[e.top] >= context.script.end[loop] for e in context.loops.does(place)
    )


def _set_behind_the_forward_pass(context: Context) -> Iterator[Hit]:
    """`loss = model(x)`, then `model.require_backward_grad_sync = last`: DDP's forward pass reads it, too."""
    script, values = context.script, context.values
    for assigned in script.all(ast.Assign):
        target = assigned.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "require_backward_grad_sync":
            continue
        loop = next(iter(script.loops_around(assigned)), None)
        key = values.key(target.value)
        if loop is None or key is None or isinstance(assigned.value, ast.Constant):
            continue
        calls = [c for c in script.within(loop, ast.Call) if values.key(c.func) == key]
        back = [c for c in script.within(loop, ast.Call) if script.last_names[c] == "backward"]
        begin = script.begin[assigned]
        if (
            calls
            and back
            and all(script.begin[c] < begin for c in calls)
            and all(script.begin[c] > begin for c in back)
        ):
            text = "this is set behind the forward pass, which reads it, too: at the step gradients are not averaged"
            yield Hit(assigned, text, related=((calls[0], "the forward pass"),))
