"""A full state dict of a sharded model, gathered onto the GPU of every rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, has_stars, is_constant

#: without these words there is nothing to check
NEEDS = ({"FullStateDictConfig", "StateDictOptions", "state_dict_type", "set_state_dict_type"},)


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    found = [call for call in script.calls("FullStateDictConfig") if _missing(call, "offload_to_cpu", 0)]
    for call in script.calls("StateDictOptions"):
        full = is_constant(argument(call, 0, "full_state_dict"), True)
        if full and argument(call, -1, "broadcast_from_rank0") is None and _missing(call, "cpu_offload", 1):
            found.append(call)
    for call in script.calls("state_dict_type", "set_state_dict_type"):
        kind = argument(call, 1, "state_dict_type")
        whole = kind is not None and script.dotted(kind).endswith("StateDictType.FULL_STATE_DICT")
        if whole and argument(call, 2, "state_dict_config") is None and not has_stars(call) and _saves(context, call):
            found.append(call)
    yield from (Hit(call, "this gathers the whole model onto the GPU of every rank") for call in found)


def _missing(call: ast.Call, name: str, place: int) -> bool:
    """Not given, or given as False; not what a variable decides."""
    given = argument(call, place, name)
    return not has_stars(call) and (given is None or is_constant(given, False))


def _saves(context: Context, call: ast.Call) -> bool:
    """A state dict is taken below it; where one is loaded, every rank may well need all of it."""
    statement = context.script.statement_of(call)
    place = statement if isinstance(statement, (ast.With, ast.AsyncWith)) else context.script.function_of(call)
    inner = context.script.within(place or context.script.module_of(call), ast.Call)
    names = {context.script.last_names[c] for c in inner}
    return "state_dict" in names and "load_state_dict" not in names
