"""The number of steps of a schedule does not fit how often it is stepped, by Accelerate or with the optimizer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import ACCUMULATES, accumulations
from distdbg.lint.script.kinds import SCHEDULER
from distdbg.lint.script.loops import LOADER
from distdbg.lint.script.script import argument, last_word, names_in, receiver

REAL_MISTAKES = 7
#: without these words there is nothing to check
NEEDS = ({"len(", "num_processes"}, re.compile(r"^(?:get_\w*schedul\w*|prepare|\w+LR)\($"))

_STEPS = re.compile(r"steps|iters|iterations|updates", re.IGNORECASE)
_ACCUMULATION = re.compile(r"accumulation_steps|grad_accum|accum_steps", re.IGNORECASE)
_TOTAL = ("num_training_steps", "total_steps", "num_total_steps", "T_max")
_DEEPEST = 5


def check(context: Context) -> Iterator[Hit]:
    prepared = list(_prepared(context))
    for call, name in context.script.last_names.items():
        words = _TOTAL if SCHEDULER.match(name) else _TOTAL[:1]
        total = next((t for word in words if (t := argument(call, -1, word)) is not None), None)
        if total is not None:
            yield from _of_a_scheduler(context, call, total, prepared)
            yield from _of_micro_batches(context, call, total)


def _prepared(context: Context) -> Iterator[tuple[ast.Call, ast.expr, ast.expr | None]]:
    """Each call of prepare with a loader: the call, the loader that it is given, and what it is called afterwards."""
    script = context.script
    for call in script.calls("prepare"):
        parent = script.parents[call]
        target = parent.targets[0] if isinstance(parent, ast.Assign) else None
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        for place, given in enumerate(call.args):
            if isinstance(given, (ast.Name, ast.Attribute)) and LOADER.search(last_word(given)):
                yield call, given, targets[place] if len(targets) == len(call.args) else None


def _of_a_scheduler(
    context: Context, call: ast.Call, total: ast.expr, prepared: list[tuple[ast.Call, ast.expr, ast.expr | None]]
) -> Iterator[Hit]:
    script = context.script
    parts = _made_of(context, total, call)
    if any(_divides_by_ranks(part) or _is_chosen(part) for part in parts):
        return
    products = [n for part in parts for n in ast.walk(part) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
    by_ranks = [p for p in products if "num_processes" in names_in(p)]
    lengths = [n for part in parts for n in ast.walk(part) if isinstance(n, ast.Call) and last_word(n.func) == "len"]
    for length in lengths if by_ranks else ():
        for prepare, given, _ in prepared:
            later = script.begin[prepare] > script.begin[call]
            if later and length.args and context.values.key(length.args[0]) == context.values.key(given) is not None:
                text = "the steps are those of the whole loader times the number of ranks: the schedule is too long"
                yield Hit(
                    call, text, related=((length, "before it is shared among the ranks"), (prepare, "shared here"))
                )
                return
    for product in by_ranks:
        if any(_ACCUMULATION.search(w) for w in names_in(product)) and any(_STEPS.search(w) for w in names_in(product)):
            text = "steps are multiplied by those of accumulation, and Accelerate steps the schedule with the optimizer"
            yield Hit(product, text, "possible", severity="info", related=((call, "the schedule"),))
            return


def _of_micro_batches(context: Context, call: ast.Call, total: ast.expr) -> Iterator[Hit]:
    """`len(loader) * epochs`, and the schedule is stepped once for several of these batches."""
    script = context.script
    parts = _made_of(context, total, call)
    parts = [
        p for p in parts if not isinstance(p, ast.Call) or not last_word(p.func)[:1].isupper()
    ]  # no Accelerator(…)
    lengths = [n for part in parts for n in ast.walk(part) if isinstance(n, ast.Call) and last_word(n.func) == "len"]
    words = set().union(*map(names_in, parts))
    if not lengths or not any(_EPOCHS.search(w) for w in words) or any(map(ACCUMULATES.search, words)):
        return
    guards = {
        script.contains(one.guard, c) for one in accumulations(context) if one.guard for c in _steps(context, call)
    }
    by_accelerate = [c for c in script.calls("accumulate") if "accelerat" in script.call_names[c].lower()]
    if True not in guards and not by_accelerate:
        return
    text = (
        "this schedule is as long as there are micro-batches, and is stepped once for several of them: it does not end"
    )
    yield Hit(call, text, "possible", severity="info", related=((lengths[0], "counts micro-batches"),))


def _steps(context: Context, scheduler: ast.Call) -> Iterator[ast.Call]:
    """Where this scheduler is stepped."""
    for call in context.events.of("schedule"):
        owner = receiver(call)
        if isinstance(call, ast.Call) and owner is not None and scheduler in context.values.sites(owner, "scheduler"):
            yield call


_EPOCHS = re.compile(r"epoch", re.IGNORECASE)


def _made_of(context: Context, total: ast.expr, before: ast.Call) -> list[ast.expr]:
    """The expression, and the values of its variables, of their variables, …, that come before this call."""
    script, found, todo = context.script, [total], [total]
    for _ in range(_DEEPEST):
        names = [n for one in todo for n in script.within(one, ast.Name, ast.Attribute)]
        todo = [
            value
            for name in names
            for value in context.values.bound(name)
            if script.begin[value] < script.begin[before] and value not in found
        ]
        found += todo
    return list(dict.fromkeys(found))


def _divides_by_ranks(part: ast.expr) -> bool:
    divisions = (n for n in ast.walk(part) if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Div, ast.FloorDiv)))
    return any(re.search(r"num_processes|world_size", w) for n in divisions for w in names_in(n.right))


def _is_chosen(part: ast.expr) -> bool:
    """`steps if of_epochs else steps * num_processes`."""
    return any(isinstance(n, ast.IfExp) and "num_processes" in names_in(n) for n in ast.walk(part))
