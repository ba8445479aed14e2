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
from distdbg.lint.script.passes import repeats, restarts
from distdbg.lint.script.script import Loop, Script, argument, is_constant, last_word, names_in
from distdbg.lint.script.words import RANK_WORDS

_EPOCH = re.compile(r"^(?:\w+_)?(?:ep|epoch)(?:_\w+)?$", re.IGNORECASE)

REAL_MISTAKES = 30
#: without these words there is nothing to check
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
    shuffled = [s for s in context.values.of_kind("sampler") if s not in with_epoch and _shuffles(context, s)]
    elsewhere = _in_other_hands(context) if shuffled else set()
    without_epoch = [s for s in shuffled if s not in elsewhere and not _for_eval(context, s)]
    if not without_epoch and not (_asked_for(context) and not context.values.of_kind("sampler") and not with_epoch):
        return None
    hits = (_in_loop(context, epochs, without_epoch) for epochs in context.loops.of_kind("epoch"))
    return next((hit for hit in hits if hit is not None), None) or _run_again(context, without_epoch)


def _run_again(context: Context, without_epoch: list[ast.Call]) -> Hit | None:
    """A pass over the data of such a sampler in any loop that does not make the sampler, or begun anew at its end."""
    script = context.script
    for loop in script.all(ast.For, ast.AsyncFor):
        its = _feeding(context, loop, without_epoch)
        outer = repeats(context, loop) if its and not context.loops.in_evaluation(loop) else None
        if outer is not None and not any(script.contains(outer, s) for s in its):
            return _of_the_first_order(loop, its, outer)
    for call, given in restarts(context):
        loaders = context.values.sites(given, "loader")
        its = {s for loader in loaders for s in _samplers(context, loader) if s in without_epoch}
        if any(_shuffles(context, sampler, given) for sampler in its):
            return _of_the_first_order(call, its, call)
    return None


def _of_the_first_order(node: ast.AST, samplers: set[ast.Call], again: ast.AST) -> Hit:
    text = "no set_epoch is called on the DistributedSampler: each pass over the data has the order of the first one"
    related = [(s, "the sampler") for s in samplers][:1] + (
        [(again, "from the start again")] if again is not node else []
    )
    return Hit(node, text, related=tuple(related))


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


def _asked_for(context: Context) -> bool:
    """`isinstance(loader.sampler, DistributedSampler)`: the file expects one that is made elsewhere."""
    for call in context.script.calls("isinstance"):
        if len(call.args) == 2 and "DistributedSampler" in names_in(call.args[1]):
            statement = context.script.parents[call]
            return not isinstance(statement, ast.If) or not context.script.calls("set_epoch")
    return False


def _in_loop(context: Context, epochs: Loop, without_epoch: list[ast.Call]) -> Hit | None:
    """The place where set_epoch belongs, if this epoch loop feeds training from such a sampler."""
    batches = _batch_loop(context, epochs, without_epoch)
    if batches is None:
        return None
    function = context.script.function_of(batches)
    here = batches
    if not context.script.contains(epochs, batches):
        knows = function is not None and any(_EPOCH.match(a.arg) for a in function.args.args)
        here = batches if knows else epochs
    related: list[tuple[ast.AST, str]] = [(s, "the sampler") for s in without_epoch[:1]]
    if here is not epochs:
        related.append((epochs, "the loop over epochs"))
    given = [argument(sampler, 3, "shuffle") for sampler in without_epoch]
    plain = all(one is None or isinstance(one, ast.Constant) for one in given)
    return Hit(
        here,
        "no set_epoch is called on the DistributedSampler: every epoch has the order of the first one",
        "certain" if without_epoch and plain else "likely",
        related=tuple(related),
        fix=_fix(context, epochs, without_epoch)
        if context.script.file_of(epochs) is context.script.file_of(here)
        else None,
    )


def _batch_loop(context: Context, epochs: Loop, without_epoch: list[ast.Call]) -> Loop | None:
    """A loop over batches inside the epoch loop, or in a function it calls, that such a sampler feeds."""
    script, loops = context.script, context.loops
    places: list[ast.AST] = [epochs, *loops.reached(epochs)]
    trains = any(event.kind in ("backward", "step", "scaler_step") for event in loops.does(epochs))
    for place in places:
        loop: Loop
        for loop in script.within(place, ast.For, ast.AsyncFor, ast.While):
            by_next = {s for its in _by_next(context, epochs, loop) for s in _samplers(context, its)}
            if loop is not epochs and by_next & set(without_epoch) and not loops.in_evaluation(loop):
                return loop
            if loop is epochs or loops.kinds[loop] not in ("batch", "other") or loops.in_evaluation(loop):
                continue
            if isinstance(loop, ast.While) and loops.kinds[loop] != "batch":
                continue
            if _feeding(context, loop, without_epoch):
                return loop
            does = {event.kind for event in loops.does(loop)}
            if not _loaders(context, loop) and loops.kinds[loop] == "batch" and (does & {"backward"} or not trains):
                return loop
    return None


def _feeding(context: Context, loop: Loop, samplers: list[ast.Call]) -> set[ast.Call]:
    """Those of the samplers that shuffle what a loop iterates over."""
    if isinstance(loop, ast.While):
        return set()
    its = {s for loader in _loaders(context, loop) for s in _samplers(context, loader)}
    return {s for s in samplers if s in its and _shuffles(context, s, loop.iter)}


def _loaders(context: Context, loop: Loop) -> set[ast.Call]:
    return set() if isinstance(loop, ast.While) else context.values.sites(loop.iter, "loader")


def _by_next(context: Context, epochs: Loop, loop: Loop) -> set[ast.Call]:
    """`batches = iter(loader)` in each epoch, and `for i in range(n): batch = next(batches)`."""
    script, sites = context.script, context.values.sites
    made = {
        s for c in script.calls("iter") if script.contains(epochs, c) for a in c.args[:1] for s in sites(a, "loader")
    }
    calls = [c for c in script.within(loop, ast.Call) if script.last_names[c] == "next" and c.args]
    return made & {site for call in calls for site in sites(call.args[0], "loader")} if made else set()


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
