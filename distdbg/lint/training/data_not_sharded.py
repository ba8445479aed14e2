"""Under DDP every rank trains on all of the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.kinds import WRAPPERS_OF_MODELS
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.origins import made_of, with_values
from distdbg.lint.script.script import argument, has_stars, is_constant, names_in

_SHARDS = re.compile(
    r"split_dataset_by_node|\.shard\(|world_size\s*\]|::\s*world|IterableDataset|webdataset|ShardedDataset"
)

REAL_MISTAKES = 3
#: without these words there is nothing to check
NEEDS = ({"backward(", "DistributedSampler("}, {"DataLoader(", "shuffle"}, WRAPPERS_OF_MODELS | {"DistributedSampler("})


def check(context: Context) -> Iterator[Hit]:
    yield from _shuffled_by_rank(context)
    yield from _given_to_no_loader(context)
    yield from _without_a_sampler(context)


def _shuffled_by_rank(context: Context) -> Iterator[Hit]:
    """`DistributedSampler(data, seed=seed + rank)`: each rank takes its part of another order."""
    for sampler in context.values.of_kind("sampler"):
        seed = argument(sampler, 4, "seed")
        if seed is not None and any(map(context.ranks.mentions, with_values(context, seed))):
            text = "each rank shuffles with a seed of its own: their parts of the data overlap"
            yield Hit(sampler, text, related=((seed, "depends on the rank"),))


def _given_to_no_loader(context: Context) -> Iterator[Hit]:
    """`sampler = DistributedSampler(data)`, which is only asked whether it is there, and told the epoch."""
    script, values = context.script, context.values
    for sampler in values.of_kind("sampler"):
        statement, made = script.parents[sampler], sampler
        while isinstance(statement, ast.IfExp):
            statement = script.parents[statement]
        match statement:
            case ast.Assign(targets=[ast.Name() as kept]):
                place = script.function_of(kept)
            case _:
                continue
        names = script.within(place, ast.Name) if place is not None else script.all(ast.Name)
        reads = [n for n in names if n.id == kept.id and isinstance(n.ctx, ast.Load)]
        if any(_passes_on(context, n) for n in reads) or not script.calls("DataLoader"):
            continue
        loader = next((c for c in script.calls("DataLoader") if script.function_of(c) is place), None)
        if loader is not None and not has_stars(loader):
            text = f"{kept.id} is given to no loader: every rank goes through all of the data"
            yield Hit(made, text, related=((loader, "a loader without it"),))


def _passes_on(context: Context, name: ast.Name) -> bool:
    """Does anybody get the sampler here?"""
    match context.script.parents[name]:
        case ast.Attribute(attr="set_epoch") | ast.Compare() | ast.UnaryOp():
            return False
        case ast.If(test=test) | ast.IfExp(test=test):
            return test is not name
        case ast.Call(func=ast.Name(id="len" | "print")):
            return False
    return True


def _without_a_sampler(context: Context) -> Iterator[Hit]:
    values, script, ranks = context.values, context.script, context.ranks
    wrapped = values.of_kind("ddp", "fsdp")
    if not wrapped or values.of_kind("sampler") or context.frameworks or _SHARDS.search(script.text):
        return
    fed = [loop for loop in context.loops.training if isinstance(loop, (ast.For, ast.AsyncFor))]
    for loader in {s: None for loop in fed for s in values.sites(loop.iter, "loader")}:
        shuffle = argument(loader, 2, "shuffle")
        if not is_constant(shuffle, True) or has_stars(loader):
            continue
        if any(argument(loader, n, k) is not None for n, k in ((3, "sampler"), (4, "batch_sampler"), (-1, "use_ddp"))):
            continue
        if any(for_evaluation(w) for a in loader.args[:1] for w in names_in(a)):
            continue
        data = argument(loader, 0, "dataset")
        # the rank may be an argument of the data set, or of what it was made of
        if data is None or any(ranks.mentions(one) or "world_size" in names_in(one) for one in made_of(context, data)):
            continue
        yield Hit(
            loader,
            "this loader gives every rank the whole data set: it has no DistributedSampler",
            related=((wrapped[0], "the model is trained by all ranks"),),
        )
