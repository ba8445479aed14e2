"""Every rank writes, or removes, the same checkpoint file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, has_stars, names_in
from distdbg.lint.script.words import RANK_WORDS

_CHECKPOINT = re.compile(r"ckpt|checkpoint|snapshot|\.pth?\b|best_|model_path|weights", re.IGNORECASE)
_REMOVES = {"remove", "unlink", "rmtree"}
#: of functions and methods that save: the place and the name of the path
_SAVES = {
    "torch.save": (1, "f"),
    "torch.jit.save": (1, "f"),
    "safetensors.torch.save_file": (1, "filename"),
    "safetensors.torch.save_model": (1, "filename"),
    "save_pretrained": (0, "save_directory"),
}
_SAVES_BY_NAME = {name.rpartition(".")[2] for name in _SAVES}
_MAKES = ("makedirs", "mkdir")

#: without these words there is nothing to check
NEEDS = ({f"{name}(" for name in (*_SAVES_BY_NAME, *_REMOVES, *_MAKES, "open")}, RANK_WORDS)


def check(context: Context) -> Iterator[Hit]:
    writes = [
        call for call in context.script.calls(*_SAVES_BY_NAME, *_REMOVES, "open") if _path(context, call) is not None
    ]
    if not writes and not context.script.calls(*_MAKES):
        return
    if not context.distributed or (not context.ranks.known and not context.starts_group):
        return
    if context.frameworks & {"lightning", "trainer", "deepspeed"}:
        return
    yield from _local_rank_only(context)
    yield from _made_by_all(context)
    for call in writes:
        path = _path(context, call)
        if path is None or context.ranks.guarded(call) or _for_this_rank(context, path):
            continue
        saves = context.script.last_names[call] in _SAVES_BY_NAME
        sure = saves and _certain(context, call, path)
        does = "saves" if saves else "writes" if context.script.last_names[call] == "open" else "removes"
        yield Hit(
            call,
            f"every rank that comes here {does} {context.script.source(path)[:60]}, and no `if` keeps it to one rank",
            "likely" if sure else "possible",
            severity="warning" if sure else "info",
        )


def _path(context: Context, call: ast.Call) -> ast.expr | None:
    """The path of a save, or of a removed checkpoint."""
    name = context.script.call_names[call]
    if name.endswith(".save_pretrained") and isinstance(call.func, ast.Attribute):
        if argument(call, -1, "is_main_process") is not None or has_stars(call):
            return None  # it asks for the rank itself
        name = "save_pretrained"
    if name in _SAVES:
        return argument(call, *_SAVES[name])
    if name == "open":
        mode = argument(call, 1, "mode")
        writes = isinstance(mode, ast.Constant) and str(mode.value)[:1] in ("w", "x")
        return call.args[0] if writes and call.args and not isinstance(call.args[0], ast.Constant) else None
    if name.endswith(".save") and _scripted(context, call):
        return argument(call, 0, "f")
    if context.script.last_names[call] in _REMOVES and isinstance(call.func, ast.Attribute) and call.args:
        path = call.args[0]
        return path if any(_CHECKPOINT.search(w) for w in names_in(path)) else None
    return None


def _scripted(context: Context, call: ast.Call) -> bool:
    """`scripted.save(path)` of what torch.jit made."""
    made = context.values.assignments(call.func.value) if isinstance(call.func, ast.Attribute) else []
    values = [a.value for a in made if isinstance(a.value, ast.Call)]
    return any(context.script.call_names[v] in ("torch.jit.script", "torch.jit.trace") for v in values)


def _made_by_all(context: Context) -> Iterator[Hit]:
    """A folder that each rank makes where it is not there yet: the second one to make it fails."""
    script = context.script
    if script.calls("spawn", "Process"):
        return  # what starts the ranks may make it before
    for call in script.calls(*_MAKES):
        exist_ok = argument(call, -1, "exist_ok")
        if exist_ok is not None or has_stars(call) or any(isinstance(o, ast.Try) for o in script.above(call)):
            continue
        of_os = script.call_names[call] in ("os.makedirs", "os.mkdir")
        path = call.args[0] if of_os and call.args else None
        if path is None or context.ranks.guarded(call) or _for_this_rank(context, path):
            continue
        if _certain(context, call, path):
            text = f"every rank that comes here makes {script.source(path)[:60]}: all but the first one fail"
            yield Hit(call, text, severity="warning")


def _for_this_rank(context: Context, path: ast.expr) -> bool:
    """Whether the rank, or a buffer, is part of the path: directly or through variables."""
    if context.ranks.mentions(path) or any(
        re.search(r"buffer|bytesio|tmp|temp", w, re.IGNORECASE) for w in names_in(path)
    ):
        return True
    script = context.script
    keys = {context.values.key(n) for n in ast.walk(path) if isinstance(n, (ast.Name, ast.Attribute))} - {None}
    for assigned in script.all(ast.Assign, ast.AugAssign):
        targets = assigned.targets if isinstance(assigned, ast.Assign) else [assigned.target]
        if any(context.values.key(t) in keys for t in targets):
            value = assigned.value
            if context.ranks.mentions(value) or any(w in ("BytesIO", "mkdtemp") for w in names_in(value)):
                return True
    return False


def _certain(context: Context, call: ast.Call, path: ast.expr) -> bool:
    """The file starts the process group itself, and nothing on the way down to the save asks anything unknown."""
    script = context.script
    if not context.starts_group or not script.calls("DistributedDataParallel", "DDP"):
        return False
    if not isinstance(path, (ast.Constant, ast.JoinedStr, ast.Name)):
        return False
    node: ast.AST = call
    for _ in range(6):
        if any(isinstance(o, (ast.If, ast.IfExp)) and not _plain_test(o.test) for o in script.above(node)):
            return False
        function = script.function_of(node)
        if function is None:
            return True
        callers = context.values.callers.get(function, [])
        if len(callers) != 1:
            return False
        node = callers[0]
    return False


def _plain_test(test: ast.expr) -> bool:
    """`epoch % 5 == 0`, `__name__ == '__main__'`: a question that does not hide one about the rank."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Attribute(attr="exists" | "isdir" | "is_dir"))):
            return True
    words = names_in(test)
    return all(
        re.search(r"epoch|step|iter|every|freq|interval|save|best|acc|loss|score|args|__", w) for w in words
    ) and not any(re.search(r"rank|main_?process|master|distributed|primary", w) for w in words)


def _local_rank_only(context: Context) -> Iterator[Hit]:
    """Guarded by the local rank, in a file that knows the global one: several nodes save, to one path."""
    if "RANK" not in {c.value for c in context.script.all(ast.Constant)} and not context.script.calls("get_rank"):
        return
    seen: set[ast.AST] = set()
    for call in context.script.calls("save"):
        if context.script.call_names[call] != "torch.save":
            continue
        for guard in _guards_up(context, call):
            test = guard.test if isinstance(guard, ast.If) else None
            if test is not None and guard not in seen and _asks_local(context, test):
                seen.add(guard)
                yield Hit(
                    guard,
                    "local rank 0 of every node saves here: on a shared disk several nodes write one file",
                    severity="warning",
                    related=((call, "the save"),),
                )


def _guards_up(context: Context, call: ast.Call) -> list[ast.AST]:
    """The guards of a save, in its function or, where it has none there, of the calls that lead to it."""
    found: list[ast.AST] = []
    todo: list[tuple[ast.AST, int]] = [(call, 0)]
    while todo:
        node, depth = todo.pop()
        guards = context.ranks.guards(node)
        found += [g.node for g in guards] if len(guards) == 1 and not guards[0].otherwise else []
        function = context.script.function_of(node)
        if not guards and function is not None and depth < 4:
            todo += [(c, depth + 1) for c in context.values.callers.get(function, [])]
    return found


def _asks_local(context: Context, test: ast.expr) -> bool:
    """`local_rank == 0`, alone or as one part of an `and`; nothing in it asks for the global rank."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    asked = [p for p in parts if context.ranks.asks(p)]
    if len(asked) != 1:
        return False
    match asked[0]:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
            return any(word.lower() == "local_rank" for word in names_in(left))
    return False
