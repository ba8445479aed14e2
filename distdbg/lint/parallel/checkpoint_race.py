"""Every rank writes, makes or removes the same file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.one_writer import into_a_folder_of_another_rank, read_before_it_is_written
from distdbg.lint.script.origins import with_values
from distdbg.lint.script.script import names_in
from distdbg.lint.script.turns import in_turn
from distdbg.lint.script.words import RANK_WORDS
from distdbg.lint.script.writes import WRITE_WORDS, Write, for_this_rank, may_save, writes

REAL_MISTAKES = 78
NEEDS = (WRITE_WORDS, (RANK_WORDS, {"Accelerator"}))
#: callers of a helper that a hit names
_MAX_CALLERS = 3
_LOCAL = {"local_rank", "local_process_index", "is_local_main_process", "slurm_localid"}
_GLOBAL = re.compile(r"(?:^|_)rank$|global", re.IGNORECASE)
_PLAIN = re.compile(r"epoch|step|iter|every|freq|interval|save|best|acc|loss|score|args|exists|isdir|__")


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & {"lightning", "trainer"}:
        return
    if "accelerate" not in context.frameworks and not context.distributed:
        return
    found = list(writes(context))
    yield from _on_each_node(context, found)
    yield from into_a_folder_of_another_rank(context, found)
    yield from read_before_it_is_written(context, found)
    spawns = context.script.calls("spawn", "Process")  # what starts the ranks may make a folder before
    ranks = {function for call in spawns for function in context.loops.reached(call)}
    for write in found:
        call, path = write.call, write.path
        before = bool(spawns) and context.script.function_of(call) not in ranks
        if write.does == "makes" and (before or isinstance(path, ast.Constant)):
            continue
        if (path is not None and for_this_rank(context, path)) or context.ranks.guarded(call):
            continue
        if not in_turn(context, call) and not may_save(context, call):
            sure = write.does in ("saves", "makes") and _all_ranks_come(context, call)
            ways = (way for way in context.values.ways_to(call) if way is not call and not context.ranks.guarded(way))
            yield Hit(
                call,
                _text(context, write),
                "likely" if sure else "possible",
                severity=None if sure else "info",
                related=tuple((way, "called here, by every rank") for way in islice(ways, _MAX_CALLERS)),
            )


def _text(context: Context, write: Write) -> str:
    if write.path is None:
        called = context.script.source(write.call.func)[:60]
        return f"every rank that comes here calls {called}: unless that keeps it to one rank, all write one file"
    path = context.script.source(write.path)[:60]
    if write.does == "makes":
        return f"every rank that comes here makes {path}: on a shared disk only the first of them succeeds"
    return f"every rank that comes here {write.does} {path}, and no `if` that was read keeps it to one rank"


def _all_ranks_come(context: Context, call: ast.Call) -> bool:
    """The file starts the process group itself, and no test on the way down to the save may hide one of the rank."""
    script = context.script
    if not context.starts_group or not script.calls("DistributedDataParallel", "DDP"):
        return False
    for way in context.values.ways_to(call):
        tests = [outer.test for outer in script.above(way) if isinstance(outer, (ast.If, ast.IfExp))]
        function = script.function_of(way)
        callers = context.values.callers.get(function, []) if function is not None else [way]
        if len(callers) != 1 or not all(_PLAIN.search(word) for test in tests for word in names_in(test)):
            return False
    return True


def _on_each_node(context: Context, found: list[Write]) -> Iterator[Hit]:
    """Guarded by the local rank alone: on several nodes several ranks write, to one path."""
    script = context.script
    constants = {c.value for c in script.all(ast.Constant) if isinstance(c.value, str)}
    knows_global = "RANK" in constants or bool(script.calls("get_rank"))
    for write in found:
        guards = next((g for way in context.values.ways_to(write.call) if (g := context.ranks.guards(way))), [])
        test = guards[0].test if len(guards) == 1 and write.does in ("saves", "lets a helper save", "removes") else None
        if test is not None and _asks_for_local_rank(context, test):
            sure = knows_global and script.call_names[write.call] == "torch.save"
            yield Hit(
                guards[0].node,
                "local rank 0 of every node saves here: on a shared disk several nodes write one file",
                "likely" if sure else "possible",
                severity=None if sure else "info",
                related=((write.call, "the save"),),
            )


def _asks_for_local_rank(context: Context, test: ast.expr) -> bool:
    """It, or the variable in it, is made of the local rank and of no other."""
    words = {word.lower() for part in with_values(context, test) for word in names_in(part)}
    return bool(words & _LOCAL) and not any(map(_GLOBAL.search, words - _LOCAL))
