"""A rank that makes its GPU the current one after a collective of its process group, which needs a GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.collectives import waits
from distdbg.lint.script.script import FUNCTIONS, Script, argument

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = ({"set_device("}, {"init_process_group("})


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    for chosen in script.calls("set_device"):
        if script.call_names[chosen] != "torch.cuda.set_device" or any(_is_earlier(context, chosen)):
            continue
        function = script.function_of(chosen)
        before = [
            call
            for call in script.within(function or script.module_of(chosen), ast.Call)
            if script.function_of(call) is function and _always_before(script, call, chosen)
        ]
        starts = [call for call in before if _starts_group(context, call)]
        if not starts:
            continue
        behind = [call for call in before if script.begin[call] > script.begin[starts[0]] and waits(context, call)]
        if behind:
            text = f"{script.source(behind[0])[:60]} comes before this rank has chosen its GPU: it may use GPU 0"
            yield Hit(chosen, text, related=((behind[0], "this needs a GPU"), (starts[0], "the group starts here")))


def _is_earlier(context: Context, chosen: ast.Call) -> Iterator[bool]:
    """Another call chose the GPU before, in the same function."""
    script = context.script
    for other in script.calls("set_device"):
        same = script.function_of(other) is script.function_of(chosen)
        yield same and script.begin[other] < script.begin[chosen]


def _starts_group(context: Context, call: ast.Call) -> bool:
    """torch's own start of a group with NCCL, here or in a function that is called."""
    script = context.script
    functions = context.values.callees(call)
    inner = [c for f in functions for c in script.within(f, ast.Call)]
    if any(script.last_names[c] == "set_device" for c in inner):
        return False
    return any(
        script.call_names[c] == "torch.distributed.init_process_group" and _may_be_nccl(c) for c in (call, *inner)
    )


def _may_be_nccl(start: ast.Call) -> bool:
    backend = argument(start, 0, "backend")
    return not isinstance(backend, ast.Constant) or backend.value is None or "nccl" in str(backend.value)


def _always_before(script: Script, call: ast.Call, chosen: ast.Call) -> bool:
    """Whoever comes to `chosen` has been at `call`: its statement is in a block around `chosen`, above it."""
    statement = script.statement_of(call)
    block = script.parents[statement]
    if isinstance(statement, (ast.If, ast.For, ast.While, ast.Try, ast.With, *FUNCTIONS)):
        return False
    for outer in (chosen, *script.above(chosen)):
        if script.parents.get(outer) is block and isinstance(outer, ast.stmt):
            blocks = (getattr(block, name, None) for name in ("body", "orelse", "finalbody"))
            both = next((b for b in blocks if isinstance(b, list) and statement in b and outer in b), None)
            return both is not None and both.index(statement) < both.index(outer)
    return False
