"""A checkpoint that every rank loads onto the GPU it was saved from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, has_stars, names_in
from distdbg.lint.script.words import RANK_WORDS

_STATE = re.compile(
    r"ckpt|checkpoint|snapshot|state|resume|weight|model|pretrain|param|(?:^|_)net(?:_|$)", re.IGNORECASE
)
#: state of these kinds has no tensor on a GPU
_ON_THE_HOST = re.compile(r"data_?loader|sampler|scaler|progress|(?:^|_)rng|random_state", re.IGNORECASE)

REAL_MISTAKES = 18
#: without these words there is nothing to check
NEEDS = ({"load("}, (RANK_WORDS, {"map_location"}))
#: there is no GPU
UNLESS = re.compile(r"backend=.gloo|['\"]gloo['\"]\s*[,)]")


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    if not context.distributed and "accelerate" not in context.frameworks:
        return
    if context.frameworks & {"lightning", "trainer"}:
        return
    if script.calls("set_default_device"):
        return
    for call in script.calls("load"):
        if script.call_names[call] != "torch.load" or argument(call, 1, "map_location") is not None or has_stars(call):
            continue
        if (
            "map_location" in _parameters(context, call)
            or _mapped_elsewhere(context, call)
            or not _is_state(context, call)
            or context.ranks.guarded(call)
            or _beside_the_ranks(context, call)
            or any(_of_this_rank(context, given) for given in call.args[:1])
        ):
            continue
        made = context.starts_group or bool(script.calls("DistributedDataParallel", "DDP"))
        yield Hit(
            call,
            "every rank loads these tensors onto the GPU that saved them, which is most often cuda:0",
            "likely" if made else "possible",
            severity="warning" if made else "info",
        )


def _parameters(context: Context, node: ast.AST) -> set[str]:
    function = context.script.function_of(node)
    return {a.arg for a in (*function.args.args, *function.args.kwonlyargs)} if function is not None else set()


def _beside_the_ranks(context: Context, call: ast.Call) -> bool:
    """In a function that is called by the process that starts the ranks, and by none of them."""
    script = context.script
    spawns = [c for c in script.calls("spawn") if "multiprocessing" in script.call_names[c]]
    ranks = {function for spawn in spawns for function in context.loops.reached(spawn)}
    function = script.function_of(call)
    callers = context.values.callers.get(function, []) if function is not None and ranks else []
    return bool(callers) and function not in ranks and all(script.function_of(c) not in ranks for c in callers)


def _mapped_elsewhere(context: Context, call: ast.Call) -> bool:
    """`if gpu is None: load(path)` beside `load(path, map_location=…)`: a job of several ranks goes the other way."""
    script, function = context.script, context.script.function_of(call)
    loads = [c for c in script.calls("load") if argument(c, 1, "map_location") is not None and c.args]
    beside = [c for c in loads if script.function_of(c) is function]
    return bool(call.args) and any(ast.dump(c.args[0]) == ast.dump(call.args[0]) for c in beside)


def _of_this_rank(context: Context, path: ast.expr) -> bool:
    """The rank is part of the path, directly or through variables: the GPU that saved is the rank's own."""
    parts: list[ast.expr] = [path]
    for _ in range(4):
        if any(map(context.ranks.mentions, parts)):
            return True
        names = (n for part in parts for n in ast.walk(part) if isinstance(n, (ast.Name, ast.Attribute)))
        parts = [value for name in names for value in context.values.bound(name)]
    return False


def _is_state(context: Context, call: ast.Call) -> bool:
    """By the path, or by what is done with it, a model's or an optimizer's state."""
    words: set[str] = set().union(*map(names_in, call.args))
    statement = context.script.statement_of(call)
    if isinstance(statement, ast.Assign):
        words |= set().union(*map(names_in, statement.targets))
    function = context.script.function_of(call)
    if isinstance(statement, ast.Return) and function is not None:
        words.add(function.name)
    if any(map(_ON_THE_HOST.search, words)):
        return False
    return "load_state_dict" in names_in(statement) or any(map(_STATE.search, words)) or _is_loaded(context, statement)


def _is_loaded(context: Context, statement: ast.stmt) -> bool:
    """`model.load_state_dict(loaded["model"])` of the variable that it is assigned to."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    keys = {context.values.key(t) for t in targets if isinstance(t, (ast.Name, ast.Attribute))}
    given = (node for c in context.script.calls("load_state_dict") for node in map(_root, c.args[:1]))
    return any(context.values.key(node) in keys for node in given if isinstance(node, (ast.Name, ast.Attribute)))


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node
