"""Every rank writes, moves or removes the same file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.collectives import waits
from distdbg.lint.script.devices import of_several_gpus
from distdbg.lint.script.script import Function, last_word, names_in
from distdbg.lint.script.turns import WAITS, in_turn
from distdbg.lint.script.words import RANK_WORDS
from distdbg.lint.script.writers import WRITE_WORDS, Does
from distdbg.lint.script.writes import Write, for_this_rank, paths_of, writes
from distdbg.model import Confidence, Severity

REAL_MISTAKES = 78
#: without these words there is nothing to check
NEEDS = (WRITE_WORDS, (RANK_WORDS, re.compile(r"^(?:Accelerator|Dataset|Trainer)$", re.IGNORECASE)))

#: callers of a helper that a hit names
_MOST_CALLERS = 3


def check(context: Context) -> Iterator[Hit]:
    ranks_come = _ranks_come(context)
    if not ranks_come:
        return
    found = list(writes(context))
    yield from _local_rank_only(context, found)
    if ranks_come == "do":
        yield from _into_a_folder_of_another_rank(context, found)
    spawns = context.script.calls("spawn", "Process")  # what starts the ranks may make a folder before
    ranks = {function for call in spawns for function in context.loops.reached(call)}
    if_they_come: dict[ast.AST, list[Write]] = {}
    for write in found:
        before = bool(spawns) and context.script.function_of(write.call) not in ranks
        if write.does == "makes" and (before or isinstance(write.path, ast.Constant)):
            continue
        if write.everyday and (before or not _run_by_ranks(context, write.call)):
            continue
        if write.path is not None and for_this_rank(context, write.path):
            continue
        if context.ranks.guarded(write.call):
            continue
        if _of_a_sample(context, write) or in_turn(context, write.call) or _should_save(context, write.call):
            continue
        if _left_to_a_trainer(context, write):
            continue
        if ranks_come == "may":
            place = context.script.function_of(write.call) or context.script.module_of(write.call)
            if_they_come.setdefault(place, []).append(write)
            continue
        sure = write.does in ("saves", "makes") and _certain(context, write.call, write.path)
        yield Hit(
            write.call,
            _text(context, write, ranks_come),
            "likely" if sure else "possible",
            severity="warning" if sure else "info",
            related=tuple(islice(_called_by(context, write), _MOST_CALLERS)),
        )
    for first, *others in if_they_come.values():  # one remark a function
        related = (*((one.call, "and here") for one in others), *islice(_called_by(context, first), _MOST_CALLERS))
        yield Hit(first.call, _text(context, first, ranks_come), "possible", severity="info", related=related)


def _ranks_come(context: Context) -> Literal["do", "may", ""]:
    """Whether several ranks run the file: it shows them; or only speaks of them, and another file starts it."""
    several = context.ranks.known or context.starts_group or context.values.of_kind("ddp", "fsdp")
    shown = "accelerate" in context.frameworks or (context.distributed and several)
    if context.frameworks & {"lightning", "trainer"}:  # these start the ranks, and save on one
        return "may" if shown or any(map(of_several_gpus, context.script.calls("Trainer"))) else ""
    if shown:
        return "do"
    text = context.script.file.text
    return "may" if context.distributed and _SPEAKS.search(text) and "__main__" not in text else ""


def _left_to_a_trainer(context: Context, write: Write) -> bool:
    """In `_save` of a Trainer, which asks for the rank before, or by its own methods; with Lightning, not in a hook."""
    owner, function = context.script.class_of(write.call), context.script.function_of(write.call)
    if not context.frameworks & {"lightning", "trainer"}:
        return False
    if owner is None or function is None:
        return "lightning" in context.frameworks
    return bool(owner.bases) and (write.path is None or _OF_A_TRAINER.match(function.name) is not None)


def _run_by_ranks(context: Context, call: ast.Call) -> bool:
    """More than a name tells that several ranks come here: the file makes them, or its function asks for the rank."""
    if context.starts_group or context.values.of_kind("ddp", "fsdp", "accelerator") or context.script.calls(*_OF_RANKS):
        return True
    function, script = context.script.function_of(call), context.script
    if function is None:
        return False
    asked = any(context.ranks.asks(one.test) for one in script.within(function, ast.If, ast.IfExp))
    return asked or any(script.contains(function, one) for one in script.calls("DistributedSampler"))


def _should_save(context: Context, call: ast.Call) -> bool:
    """`if args.should_save:` of transformers' TrainingArguments, which hold on one rank."""
    if "should_save" not in context.script.text:
        return False
    tests = (outer.test for outer in context.script.above(call) if isinstance(outer, ast.If))
    return any(isinstance(n, ast.Attribute) and n.attr == "should_save" for test in tests for n in ast.walk(test))


def _of_a_sample(context: Context, write: Write) -> bool:
    """A file for each image, sentence, …: ranks that share the data write different ones."""
    if write.path is None:
        return write.does == "lets a helper save" and any(map(context.samples.named_in, paths_of(write.call)))
    return write.does in ("writes", "appends to") and context.samples.named_in(write.path)


def _called_by(context: Context, write: Write) -> Iterator[tuple[ast.AST, str]]:
    """Calls that lead to this helper on every rank: that is where a reader mends it."""
    script = context.script
    seen: set[ast.AST] = set()
    todo: list[ast.AST] = [write.call]
    for node in todo:  # grows meanwhile
        function = script.function_of(node)
        if function is None or function in seen:
            continue
        seen.add(function)
        helper = _WRITER.search(function.name) is not None
        for call in context.values.callers.get(function, []):
            elsewhere = script.file_of(call) is not script.file_of(write.call)
            if not elsewhere and not context.ranks.guards(call):
                todo.append(call)
            if (elsewhere or helper) and not context.ranks.guarded(call):
                yield call, "called here, by every rank"


#: only a script of several ranks calls these
_OF_RANKS = ("get_rank", "get_world_size", "barrier", "wait_for_everyone")
#: functions whose purpose is to write
_WRITER = re.compile(
    r"save|write|dump|log|export|record|store|copy|clean|remove|delete|prune|mk_?dir|summary|download", re.IGNORECASE
)
#: a text with one of these is about several ranks
_SPEAKS = re.compile(
    r"horovod|torch\.distributed|DistributedDataParallel|\b(?:DDP|ddp)\b|DistributedSampler|world_size"
)
#: methods that a Trainer calls where it saves
_OF_A_TRAINER = re.compile(r"^_save$|^on_save|^_rotate")
_VERBS: dict[Does, str] = {
    "saves": "save", "writes": "write", "makes": "make", "downloads": "download or unpack into", "removes": "remove",
    "moves": "move", "logs to": "log to", "appends to": "append to",
}  # fmt: skip


def _into_a_folder_of_another_rank(context: Context, found: list[Write]) -> Iterator[Hit]:
    """`if rank == 0: makedirs(folder)`, and behind it every rank writes into the folder, with no barrier between."""
    script = context.script
    for made in script.calls("makedirs", "mkdir"):
        guards, function = context.ranks.guards(made), script.function_of(made)
        folder = _made_folder(context, made)
        if not guards or folder is None or function is None:
            continue
        later = [c for c in script.within(function, ast.Call) if script.begin[c] > script.begin[made]]
        hits: list[Hit] = []
        for write in found:
            if write.path is None or write.call not in later or context.ranks.guarded(write.call):
                continue
            if folder in _parameters(script.function_of(write.call), function):
                continue
            between = [c for c in later if script.begin[c] < script.begin[write.call]]
            if any(waits(context, c) or WAITS.search(script.last_names[c]) for c in between):
                break
            if any(_makes_it_too(context, c, folder) for c in between):
                break
            if folder in _words_of_path(context, write.path):
                text = f"only one rank makes {folder}, and every rank writes into it at once: it may not be there yet"
                much_later = bool(script.loops_around(write.call)) and not script.loops_around(made)
                severity: Severity = "info" if much_later else "warning"
                confidence: Confidence = "possible" if much_later else "likely"
                hits.append(Hit(write.call, text, confidence, severity, ((made, "made here, by one rank"),)))
        if hits:
            yield min(hits, key=lambda hit: hit.severity == "info")


def _parameters(inner: Function | None, outer: Function) -> set[str]:
    """Parameters of a function within `outer`: a folder of that name is its caller's."""
    if inner is None or inner is outer:
        return set()
    return {a.arg for a in (*inner.args.args, *inner.args.kwonlyargs)}


def _makes_it_too(context: Context, call: ast.Call, folder: str) -> bool:
    """Every rank makes the folder, or one in it, as well."""
    if context.script.last_names[call] not in ("makedirs", "mkdir") or context.ranks.guarded(call):
        return False
    return folder in names_in(call)


def _made_folder(context: Context, made: ast.Call) -> str | None:
    name = context.script.call_names[made]
    path = made.args[0] if name.startswith("os.") and made.args else getattr(made.func, "value", None)
    return last_word(path) or None if path is not None else None


def _words_of_path(context: Context, path: ast.expr) -> set[str]:
    """The names of a path, and of what its variable was made of."""
    names = context.script.within(path, ast.Name, ast.Attribute)
    return names_in(path).union(*(names_in(value) for n in names for value in context.values.bound(n)))


def _text(context: Context, write: Write, ranks_come: str) -> str:
    if ranks_come == "may" and write.path is not None:
        path = context.script.source(write.path)[:60]
        return f"where several ranks come here, all of them {_VERBS[write.does]} {path}"
    if write.path is None:
        called = context.script.source(write.call.func)[:60]
        if write.does == "logs to":
            return f"every rank that comes here calls {called}, and no `if` that was read keeps it to one rank"
        what = "remove the same files" if write.does == "lets a helper remove" else "write one file"
        return f"every rank that comes here calls {called}: unless that keeps it to one rank, all {what}"
    path = context.script.source(write.path)[:60]
    if write.does == "makes":
        return f"every rank that comes here makes {path}: on a shared disk only the first of them succeeds"
    does = "downloads or unpacks into" if write.does == "downloads" else write.does
    return f"every rank that comes here {does} {path}, and no `if` that was read keeps it to one rank"


def _certain(context: Context, call: ast.Call, path: ast.expr | None) -> bool:
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


def _local_rank_only(context: Context, found: list[Write]) -> Iterator[Hit]:
    """Guarded by the local rank alone: on several nodes several ranks write, to one path."""
    script = context.script
    constants = {c.value for c in script.all(ast.Constant) if isinstance(c.value, str)}
    knows_global = "RANK" in constants or bool(script.calls("get_rank"))
    for write in found:
        if write.does not in ("saves", "lets a helper save", "removes", "moves"):
            continue
        for guard in _guards_up(context, write.call):
            test = guard.test if isinstance(guard, ast.If) else None
            place = _local(context, guard, test) if test is not None else None
            if place is None:
                continue
            sure = knows_global and place is guard and script.call_names[write.call] == "torch.save"
            yield Hit(
                place,
                "local rank 0 of every node saves here: on a shared disk several nodes write one file",
                "likely" if sure else "possible",
                severity="warning" if sure else "info",
                related=((write.call, "the save"), *(() if place is guard else ((guard, "the guard"),))),
            )


def _guards_up(context: Context, call: ast.Call) -> list[ast.AST]:
    """The guards of a save, in its function or, where it has none there, of the calls that lead to it."""
    found: list[ast.AST] = []
    todo: list[tuple[ast.AST, int]] = [(call, 0)]
    while todo:
        node, depth = todo.pop()
        guards = context.ranks.guards(node)
        found += [g.node for g in guards] if len(guards) == 1 else []
        function = context.script.function_of(node)
        if not guards and function is not None and depth < 4:
            todo += [(c, depth + 1) for c in context.values.callers.get(function, [])]
    return found


def _local(context: Context, guard: ast.AST, test: ast.expr) -> ast.AST | None:
    """The guard, if it asks for local rank 0 alone; of an alias, where it gets the local rank."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    asked = [p for p in parts if context.ranks.asks(p)]
    if len(asked) != 1:
        return None
    match asked[0]:
        case ast.Compare(
            left=left, ops=[ast.Eq() | ast.LtE() | ast.NotEq() | ast.Gt()], comparators=[ast.Constant(value=0)]
        ):
            pass
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.List() | ast.Tuple() | ast.Set()]):
            pass
        case ast.UnaryOp(op=ast.Not(), operand=left) | (ast.Name() | ast.Attribute() as left):
            pass
        case _:
            return None
    if _is_local(left):
        return guard
    made = list(_given(context, left))
    return made[0][0] if made and all(_is_local(value) for _, value in made) else None


def _is_local(node: ast.expr) -> bool:
    words = {word.lower() for word in names_in(node)}
    return bool(words & {"local_rank", "local_process_index", "is_local_main_process", "slurm_localid"}) and not any(
        re.search(r"(?:^|[^l]_)rank$|global", word) and word != "local_rank" for word in words
    )


def _given(context: Context, node: ast.expr) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """What a variable is bound to, and where: in tuples, too."""
    key = context.values.key(node)
    for assigned in context.script.all(ast.Assign) if key is not None else ():
        for target in assigned.targets:
            pairs = [(target, assigned.value)]
            if isinstance(target, ast.Tuple) and isinstance(assigned.value, ast.Tuple):
                pairs = list(zip(target.elts, assigned.value.elts, strict=False))
            yield from ((assigned, value) for one, value in pairs if context.values.key(one) == key)
