"""The batch of one rank is multiplied by the number of ranks: each step has the ranks squared."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, has_stars, names_in

#: the number of ranks, by its names
_RANKS = {"world_size", "get_world_size", "num_replicas", "WORLD_SIZE", "num_processes"}

#: without these words there is nothing to check
NEEDS = ({"DistributedSampler"}, {"DataLoader"}, _RANKS)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks:
        return
    for loader in context.values.of_kind("loader"):
        sampler, size = argument(loader, 3, "sampler"), argument(loader, 1, "batch_size")
        if sampler is None or size is None or has_stars(loader):
            continue
        made = context.values.sites(sampler)
        if not made or any(context.values.kind(site) != "sampler" for site in made):
            continue
        product = next(filter(None, map(_product, (size, *context.values.bound(size)))), None)
        if product is not None:
            yield Hit(
                product,
                "a rank's batch is multiplied by the number of ranks, and DistributedSampler gives each rank its share",
                related=((loader, "the loader"), (next(iter(made)), "each rank gets its share here")),
            )


def _product(size: ast.expr) -> ast.expr | None:
    """`batch_size * world_size`, with no division beside it."""
    if not isinstance(size, ast.BinOp) or not isinstance(size.op, ast.Mult):
        return None
    if any(isinstance(n, (ast.Div, ast.FloorDiv)) for n in ast.walk(size)):
        return None
    return size if any(names_in(side) & _RANKS for side in (size.left, size.right)) else None
