"""The checkpoint that a job starts again from is overwritten in place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument

_RENAMES = re.compile(r"(?:^|\.)(?:replace|rename|move|copyfile|copy2?)$|atomic", re.IGNORECASE)

#: without these words there is nothing to check
NEEDS = ({"save("}, {"load("})


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    loads = [argument(c, 0, "f") for c in script.calls("load") if script.call_names[c] == "torch.load"]
    names = {_name(node) for node in loads if node is not None} - {""}
    if not names or any(map(_RENAMES.search, script.call_names.values())):
        return
    for call in script.calls("save"):
        path = argument(call, 1, "f")
        if script.call_names[call] != "torch.save" or path is None or _name(path) not in names:
            continue
        again_and_again = any(script.loops_around(way) for way in context.values.ways_to(call, 4))
        if again_and_again and not _made_anew(context, path):
            text = f"each save overwrites {script.source(path)}, which a restart loads: a job killed meanwhile has none"
            yield Hit(call, text)


def _name(path: ast.expr) -> str:
    """`snapshot_path` of `self.snapshot_path`, the text of a constant; nothing for what is put together."""
    match path:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name if len(name) > 2 else ""  # `f` is an open file
        case ast.Constant(value=str(text)):
            return repr(text)
    return ""


def _made_anew(context: Context, path: ast.expr) -> bool:
    """Another path for each epoch: bound in a loop, or given to the function by each of its callers."""
    function = context.script.function_of(path)
    if function is not None and isinstance(path, ast.Name) and path.id in {a.arg for a in function.args.args}:
        return True
    bound = context.values.assignments(path)
    return any(context.script.loops_around(a) or isinstance(a.value, ast.JoinedStr) for a in bound)
