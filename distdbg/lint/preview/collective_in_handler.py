"""A collective where only some ranks come: in `__del__`, in a function of atexit, or behind `except`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from distdbg.evidence.ops import SETUP, of_kind
from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.collectives import COLLECTIVE_WORDS, STATE_OF_FSDP, collective, waits
from distdbg.lint.script.script import FUNCTIONS, Function

#: without these words there is nothing to check
NEEDS = (COLLECTIVE_WORDS, {"__del__", "atexit", "except"})

#: the start and the end of a process group are no collectives to wait in; of a state_dict another rule tells
_OTHERS = of_kind(SETUP) | {STATE_OF_FSDP}


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    for call in _candidates(context):
        entered = collective(context, call)
        if entered is None or entered.where or entered.operation in _OTHERS:
            continue
        name = entered.name
        function = script.function_of(call)
        if function is not None and function.name == "__del__":
            text = f"{name} in __del__: each rank collects its garbage at a time of its own"
            yield Hit(call, text, "certain", related=((function, "called when the object is freed"),))
        elif function is not None and (place := _registered(context, function)) is not None:
            text = f"{name} at the exit of the process: a rank that died does not come, and the others wait for it"
            yield Hit(call, text, related=((place, "registered here"),))
        elif (handler := _handler(context, call)) is not None:
            text = f"{name} behind `except`: the ranks that raised nothing do not enter it"
            yield Hit(call, text, related=((handler, "only ranks with this error come here"),))


def _candidates(context: Context) -> Iterable[ast.Call]:
    """Calls in a handler, in `__del__`, and all of a script that registers something for the exit."""
    script = context.script
    if "atexit" in script.text:
        return script.all(ast.Call)
    freed = (function for function in script.all(*FUNCTIONS) if function.name == "__del__")
    places = (*script.all(ast.ExceptHandler), *freed)
    return dict.fromkeys(call for place in places for call in script.within(place, ast.Call))


def _registered(context: Context, function: Function) -> ast.AST | None:
    for call in context.script.calls("register"):
        if context.script.call_names[call] == "atexit.register" and function in context.values.callees(call):
            return call
    return function if any(context.script.dotted(d) == "atexit.register" for d in function.decorator_list) else None


def _handler(context: Context, call: ast.Call) -> ast.ExceptHandler | None:
    """The handler, unless all ranks fail alike (an import, a missing attribute) or the other way has a collective."""
    script = context.script
    for outer in script.above(call):
        if isinstance(outer, FUNCTIONS):
            return None
        if isinstance(outer, ast.ExceptHandler):
            tried = script.parents[outer]
            alike = {"ImportError", "ModuleNotFoundError", "AttributeError", "KeyboardInterrupt", "StopIteration"}
            kinds = {n.id for n in ast.walk(outer.type) if isinstance(n, ast.Name)} if outer.type is not None else set()
            if not isinstance(tried, ast.Try) or kinds & alike:
                return None
            others = [*tried.body, *tried.orelse]
            comes = any(waits(context, c) for s in others for c in script.within(s, ast.Call))
            return None if comes else outer
    return None
