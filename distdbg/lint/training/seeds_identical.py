"""Every rank is given the same seed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import names_in
from distdbg.lint.script.words import RANK_WORDS

_OF_LIBRARIES = ("manual_seed", "manual_seed_all")
_OF_HELPERS = ("seed_everything", "set_seed", "set_random_seed", "setup_seed", "init_seeds", "fix_random_seeds")
#: another number in each process
_DRAWN = {"uuid4", "urandom", "time", "time_ns", "getpid", "initial_seed", "randint", "getrandbits", "worker_id"}


REAL_MISTAKES = 8
#: without these words there is nothing to check
NEEDS = ({*_OF_LIBRARIES, *_OF_HELPERS, "seed"}, (RANK_WORDS, {"LightningDataModule"}))


def check(context: Context) -> Iterator[Hit]:
    # one that Accelerate may drive, too, can start its ranks itself
    driven = context.frameworks - {"accelerate"} if context.starts_group else context.frameworks
    if driven or not context.distributed or not (context.ranks.known or context.starts_group):
        return
    script = context.script
    calls = _seeds(context)
    if not calls or any(_differs(context, c) for c in calls):
        return
    first = next((c for c in calls if _used(context, c)), None)
    if first is not None:
        yield Hit(
            first,
            f"every rank is seeded with the same {script.source(first.args[0])[:40]}: all draw the same noise",
            "possible",
        )


def _seeds(context: Context) -> list[ast.Call]:
    calls = context.script.calls(*_OF_LIBRARIES, *_OF_HELPERS, "seed")
    return [c for c in calls if c.args and not isinstance(c.args[0], ast.Starred)]


def _used(context: Context, call: ast.Call) -> bool:
    """Not inside the helper that sets all seeds, whose caller is what matters; and not a generator's own."""
    function = context.script.function_of(call)
    names = context.script.within(call.args[0], ast.Name)
    # `args.seed` is what the command line said
    plain = {n.id for n in names if not isinstance(context.script.parents[n], ast.Attribute)}
    if function is not None and {a.arg for a in function.args.args} & (plain | {"worker_id"}):
        return False
    of_library = context.script.call_names[call].startswith(("torch.", "numpy.", "random."))
    return of_library or context.script.last_names[call] in _OF_HELPERS


def _differs(context: Context, call: ast.Call) -> bool:
    """The rank, or something computed from it, is part of the seed; or each process draws its own."""
    if any(context.ranks.mentions(a) for a in (*call.args, *(k.value for k in call.keywords))):
        return True
    if names_in(call.args[0]) & _DRAWN:
        return True
    key = context.values.key(call.args[0])
    bound: list[ast.expr] = []
    always = not _is_parameter(context, call.args[0])
    for assigned in context.script.all(ast.Assign, ast.AugAssign) if key is not None else ():
        targets = assigned.targets if isinstance(assigned, ast.Assign) else [assigned.target]
        if any(context.values.key(t) == key for t in targets):
            bound.append(assigned.value)
            always = always or not any(isinstance(outer, ast.If) for outer in context.script.above(assigned))
    drawn = bool(bound) and always and all(names_in(b) & _DRAWN for b in bound)
    return drawn or any(map(context.ranks.mentions, bound))


def _is_parameter(context: Context, seed: ast.expr) -> bool:
    """`def set_seed(seed): if seed == -1: seed = …`: what it draws itself is not what it is given."""
    function = context.script.function_of(seed)
    return function is not None and isinstance(seed, ast.Name) and seed.id in {a.arg for a in function.args.args}
