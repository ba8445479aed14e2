"""Find what one rank makes and every rank uses, with no barrier between: folders and files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.collectives import waits
from distdbg.lint.script.script import Function, last_word, names_in, receiver
from distdbg.lint.script.turns import WAITS
from distdbg.lint.script.writes import Write


def into_a_folder_of_another_rank(context: Context, found: list[Write]) -> Iterator[Hit]:
    """`if rank == 0: makedirs(folder)`, and behind it every rank writes into the folder, with no barrier between."""
    script, begin = context.script, context.script.begin
    for made in script.calls("makedirs", "mkdir"):
        path = made.args[0] if script.call_names[made].startswith("os.") and made.args else receiver(made)
        folder, function = last_word(path) if path is not None else "", script.function_of(made)
        if not folder or function is None or not context.ranks.guards(made):
            continue
        later = [call for call in script.within(function, ast.Call) if begin[call] > begin[made]]
        makes = [c for c in later if script.last_names[c] in ("makedirs", "mkdir") and folder in names_in(c)]
        until = min([_next_wait(context, made, function), *map(begin.__getitem__, makes)])
        for write in found:
            reached = write.call in later and script.function_of(write.call) is function and begin[write.call] < until
            if reached and write.path is not None and not context.ranks.guarded(write.call):
                names = script.within(write.path, ast.Name, ast.Attribute)
                if any(
                    folder in names_in(v) for v in (write.path, *(v for n in names for v in context.values.bound(n)))
                ):
                    text = f"only one rank makes {folder}, and every rank writes into it: it may not be there yet"
                    yield Hit(write.call, text, related=((made, "made here, by one rank"),))
                    break


def _next_wait(context: Context, call: ast.Call, function: Function) -> int:
    """Where ranks wait for each other behind a call, or where its function ends."""
    script, begin = context.script, context.script.begin
    later = (other for other in script.within(function, ast.Call) if begin[other] > begin[call])
    waiting = (begin[c] for c in later if waits(context, c) or WAITS.search(script.last_names[c]))
    return min(waiting, default=script.end[function])


def read_before_it_is_written(context: Context, found: list[Write]) -> Iterator[Hit]:
    """`if rank == 0: torch.save(state, path)`, and behind it every rank loads the path, with no barrier between."""
    script, begin = context.script, context.script.begin
    for write in found:
        function = script.function_of(write.call)
        if function is None or write.path is None or not context.ranks.guards(write.call):
            continue
        until = _next_wait(context, write.call, function)
        for read in script.calls("load", "load_file", "from_pretrained"):
            same = bool(read.args) and ast.dump(read.args[0]) == ast.dump(write.path)
            behind = script.function_of(read) is function and begin[write.call] < begin[read] < until
            if same and behind and not context.ranks.guarded(read):
                path = script.source(write.path)[:60]
                text = f"only one rank writes {path}, and every rank reads it with no barrier between"
                yield Hit(read, text, related=((write.call, "written here, by one rank"),))
                break
