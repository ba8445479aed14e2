"""A DistributedSampler without set_epoch: every epoch has the same order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit, Insert
from distdbg.lint.script.factories import constants_behind, constants_given
from distdbg.lint.script.given import decided
from distdbg.lint.script.insertions import insert_above
from distdbg.lint.script.loaders import samplers_given
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.script import LOOPS, Loop, Script, argument, is_constant, last_word, names_in
from distdbg.lint.script.words import RANK_WORDS

_EPOCH = re.compile(r"^(?:\w+_)?(?:ep|epoch)(?:_\w+)?$", re.IGNORECASE)

REAL_MISTAKES = 30
NEEDS = (re.compile(r"DistributedSampler|loader|(?:^|_)dl$", re.IGNORECASE),
         (RANK_WORDS, re.compile("DistributedSampler", re.IGNORECASE)))  # fmt: skip
FIXES = True

#: calls that keep or ask a sampler, and leave its epoch alone
_TAKES_ONLY = {"BatchSampler", "DataLoader", "isinstance", "len", "print", "iter", "hasattr", "getattr", "append"}


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks - {"deepspeed"}:
        return
    with_epoch = _given_the_epoch(context)
    hit = _of_a_sampler(context, with_epoch) if with_epoch is not None else None
    if hit is not None:
        yield hit


def _of_a_sampler(context: Context, with_epoch: set[ast.Call]) -> Hit | None:
    """The first loop over the data of such a sampler that a loop over epochs runs: there set_epoch belongs."""
    script, loops = context.script, context.loops
    shuffled = [s for s in context.values.of_kind("sampler") if s not in with_epoch and _shuffles(context, s)]
    elsewhere = _in_other_hands(context) if shuffled else set()
    samplers = [s for s in shuffled if s not in elsewhere and not _for_eval(context, s)]
    for epochs in loops.of_kind("epoch") if samplers else ():
        places: list[ast.AST] = [epochs, *loops.reached(epochs)]
        for loop in (one for place in places for one in script.within(place, *LOOPS)):
            if loop is not epochs and not loops.in_evaluation(loop) and _feeding(context, epochs, loop, samplers):
                return _hit(context, epochs, loop, samplers)
    return None


def _hit(context: Context, epochs: Loop, batches: Loop, samplers: list[ast.Call]) -> Hit:
    script, function = context.script, context.script.function_of(batches)
    knows = function is not None and any(_EPOCH.match(a.arg) for a in function.args.args)
    here = batches if knows or script.contains(epochs, batches) else epochs
    given = [argument(sampler, 3, "shuffle") for sampler in samplers]
    plain = all(one is None or isinstance(one, ast.Constant) for one in given)
    related: list[tuple[ast.AST, str]] = [(samplers[0], "the sampler")]
    return Hit(
        here,
        "no set_epoch is called on the DistributedSampler: every epoch has the order of the first one",
        "certain" if plain else "likely",
        related=tuple(related if here is epochs else [*related, (epochs, "the loop over epochs")]),
        fix=_fix(context, epochs, samplers) if script.file_of(epochs) is script.file_of(here) else None,
    )


def _feeding(context: Context, epochs: Loop, loop: Loop, samplers: list[ast.Call]) -> bool:
    """Does one of the samplers shuffle what the loop goes over, or what `next` takes from an iterator of the epoch?

    A loop that trains on batches whose loader is not in sight is taken for one.
    """
    script, sites = context.script, context.values.sites
    read = [loop.iter] if not isinstance(loop, ast.While) else []
    trains = any(event.kind == "backward" for event in context.loops.does(loop))
    if context.loops.kinds[loop] == "batch" and trains and not any(sites(value, "loader") for value in read):
        return True
    begun = (c for c in script.calls("iter") if script.contains(epochs, c))
    loaders = {site for call in begun for given in call.args[:1] for site in sites(given, "loader")}
    read += [c.args[0] for c in script.within(loop, ast.Call) if script.last_names[c] == "next" and c.args and loaders]
    for value in read:
        its = {s for loader in sites(value, "loader") for s in _samplers(context, loader)}
        if any(sampler in its and _shuffles(context, sampler, value) for sampler in samplers):
            return True
    return False


def _given_the_epoch(context: Context) -> set[ast.Call] | None:
    """The samplers whose epoch is set, by set_epoch or by hand; None if one is not known: it may be any of them."""
    with_epoch: set[ast.Call] = set()
    for call in context.script.calls("set_epoch"):
        its = context.values.sites(call.func.value, "sampler") if isinstance(call.func, ast.Attribute) else set()
        if not its:
            return None
        with_epoch |= its
    for stored in context.script.all(ast.Attribute):
        if stored.attr == "epoch" and not isinstance(stored.ctx, ast.Load):  # set_epoch does nothing else
            its = context.values.sites(stored.value, "sampler")
            if not its and last_word(stored.value).endswith("sampler"):
                return None
            with_epoch |= its
    return with_epoch


def _samplers(context: Context, loader: ast.Call) -> set[ast.Call]:
    return {site for given in samplers_given(loader) for site in context.values.sites(given, "sampler")}


def _in_other_hands(context: Context) -> set[ast.Call]:
    """Samplers that are given to something that this file does not hold: it may well call set_epoch."""
    found: set[ast.Call] = set()
    for call in context.script.all(ast.Call):
        if context.values.kind(call) or context.values.callees(call) or context.script.last_names[call] in _TAKES_ONLY:
            continue
        for given in (*call.args, *(k.value for k in call.keywords)):
            if isinstance(given, (ast.Name, ast.Attribute)):
                found |= context.values.sites(given, "sampler")
            elif isinstance(given, ast.Call) and context.values.kind(given) == "sampler":
                found.add(given)
    return found


def _shuffles(context: Context, sampler: ast.Call, value: ast.expr | None = None) -> bool:
    """May it shuffle, by the constants of the calls that lead to it? `value`: only those that this is a result of."""
    given = argument(sampler, 3, "shuffle")
    function = context.script.function_of(sampler)
    if function is None or is_constant(given, False):
        return not is_constant(given, False)
    ways = constants_behind(context, value, function) if value is not None else []
    for constants in ways or constants_given(context, function) or [{}]:
        off = given is not None and decided(given, constants) is False
        if not off and not context.events.left_out(sampler, function, constants):
            return True
    return False


def _for_eval(context: Context, sampler: ast.Call) -> bool:
    """Named for evaluation: the data set it gets, the variable it goes to, the function or branch it is made in."""
    script = context.script
    words: set[str] = set().union(*(names_in(a) for a in sampler.args), *(names_in(k.value) for k in sampler.keywords))
    statement = script.statement_of(sampler)
    if isinstance(statement, ast.Assign):
        words |= set().union(*(names_in(t) for t in statement.targets))
    function = script.function_of(sampler)
    for its in (words, {function.name} if function else set()):  # `valid_sampler` in a function `train`
        if any("train" in word.lower() for word in its):
            return False
        if any(map(for_evaluation, its)):
            return True
    return False


def _fix(context: Context, epochs: Loop, without_epoch: list[ast.Call]) -> Insert | None:
    """Only for one sampler of torch, made under a name of its own in the block of a loop over whole numbers."""
    if len(without_epoch) != 1 or not isinstance(epochs, ast.For) or not isinstance(epochs.target, ast.Name):
        return None
    script, sampler = context.script, without_epoch[0]
    statement = script.statement_of(sampler)
    if not script.call_names[sampler].startswith(("torch.", "torchdata.")) or not _counts(script, epochs.iter):
        return None
    match statement:
        case ast.Assign(targets=[ast.Name() as target], value=value) if value is sampler:
            pass
        case _:
            return None
    bound = [n for n in script.all(ast.Name) if n.id == target.id and not isinstance(n.ctx, ast.Load)]
    block = script.block_of(epochs)
    if len(bound) != 1 or statement not in block or block.index(statement) > block.index(epochs):
        return None
    return insert_above(script, epochs.body[0], f"{target.id}.set_epoch({epochs.target.id})")


def _counts(script: Script, iterated: ast.expr) -> bool:
    """Does a loop over it count in whole numbers? `set_epoch` takes nothing else."""
    while isinstance(iterated, ast.Call) and script.last_names[iterated] == "tqdm" and iterated.args:
        iterated = iterated.args[0]
    return isinstance(iterated, ast.Call) and script.last_names[iterated] in ("range", "trange")
