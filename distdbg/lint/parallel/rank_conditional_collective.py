"""A collective that only some ranks come to: the others wait for ever, or these do."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.collectives import COLLECTIVE_WORDS, Collective, collective
from distdbg.lint.script.rank_sides import SEVERAL, RankSides, collectives_reached
from distdbg.lint.script.ranks import RankGuard
from distdbg.lint.script.script import names_in
from distdbg.lint.script.words import RANK_WORDS

REAL_MISTAKES = 20
#: without these words there is nothing to check
NEEDS = (COLLECTIVE_WORDS, RANK_WORDS)


def check(context: Context) -> Iterator[Hit]:
    if not any(collective(context, call) for call in context.script.all(ast.Call)):
        return
    sides = RankSides(context)
    for call in context.script.all(ast.Call):
        guards = [g for g in context.ranks.guards(call) if not _about_something_else(context, g, call)]
        if not guards or not all(isinstance(g.node, ast.If) for g in guards):
            continue
        hits = []
        for entered, inner in collectives_reached(context, call):
            guard = next((g for g in guards if not sides.come_too(g, call, entered)), None)
            if guard is not None and not (len(guards) > 1 and sides.come_too(guards[-1], call, entered)):
                hits.append(_hit(context, call, inner, entered, guard))
        if hits:  # one for each call: an error, if there is one
            yield min(hits, key=lambda hit: hit.severity == "info")


def _about_something_else(context: Context, guard: RankGuard, call: ast.Call) -> bool:
    """`if sharded or rank == 0`; `if not sharded and rank != 0: return` … `if sharded: …`: the other half decides."""
    if not isinstance(guard.test, ast.BoolOp):
        return False
    free = [part for part in guard.test.values if not context.ranks.asks(part)]
    if _lets_all_in(context, guard):
        return True
    words = set().union(*(names_in(part) for part in free)) if free else set()
    tests = [o.test for o in context.script.above(call) if isinstance(o, (ast.If, ast.IfExp)) and o is not guard.node]
    return any(words & names_in(test) for test in tests)


def _lets_all_in(context: Context, guard: RankGuard) -> bool:
    """Do all ranks come to the guarded line where some part of the test, which is not about ranks, wants it so?"""
    test = guard.test
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And if guard.otherwise else ast.Or):
        return False
    free = [part for part in test.values if not context.ranks.asks(part)]
    return any(not any(map(SEVERAL.search, names_in(part))) for part in free)


def _hit(context: Context, call: ast.Call, inner: ast.Call, entered: Collective, guard: RankGuard) -> Hit:
    test = context.script.source(guard.test) if guard.test is not None else ""
    side = f"behind or beside `if {test}`" if guard.otherwise else f"under `if {test}`"
    guessed = guard.test is not None and context.ranks.depends(guard.test)
    # a test of several parts may be true on all ranks alike
    sure = inner is call and entered.of_library and not isinstance(guard.test, ast.BoolOp) and not guessed
    way = "" if inner is call else f", by way of {context.script.source(call.func)}"
    lost = entered.where or "the other ranks do not enter it"
    return Hit(
        inner,
        f"{entered.name} is {side} (line {guard.node.lineno}){way}: {lost}",
        "possible" if entered.where else "certain" if sure else "likely",
        severity="info" if entered.where else None,
        related=((guard.node, "asks for the rank"), *(() if inner is call else ((call, "called here"),))),
    )
