"""Under DDP every rank trains on all of the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.kinds import WRAPPERS_OF_MODELS
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.origins import made_of
from distdbg.lint.script.script import argument, has_stars, is_constant, names_in

_SHARDS = re.compile(
    r"split_dataset_by_node|\.shard\(|world_size\s*\]|::\s*world|IterableDataset|webdataset|ShardedDataset"
)

#: without these words there is nothing to check
NEEDS = ({"backward("}, {"shuffle"}, WRAPPERS_OF_MODELS)


def check(context: Context) -> Iterator[Hit]:
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
