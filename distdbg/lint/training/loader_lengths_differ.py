"""Samples are dealt out to the ranks one by one, and some ranks get one more than others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.kinds import WRAPPERS_OF_MODELS
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.origins import made_of
from distdbg.lint.script.script import argument, names_in

#: what makes shares equal, or makes up for it
UNLESS = re.compile(
    r"\.join\(\s*(?:divide_by_initial_world_size=\w+)?\s*\):|\bJoin\(|"
    r"(?://|%)\s*(?:\w+\.)*\w*(?:world|num_replicas|nranks)|ReduceOp\.MIN|steps_per_epoch|max_steps|num_iterations|"
    r"drop_last\s*=\s*True|cycle\(|while True"
)
_RANKS = re.compile(r"world_?size|num_replicas|n_?ranks|num_ranks", re.IGNORECASE)

#: without these words there is nothing to check
NEEDS = ({"backward("}, WRAPPERS_OF_MODELS)


def check(context: Context) -> Iterator[Hit]:
    values, script = context.values, context.script
    wrapped = values.of_kind("ddp", "fsdp")
    if not wrapped or context.frameworks:
        return
    dealt = [node for node in script.all(ast.Subscript, ast.Call) if _is_dealt_out(context, node)]
    if not dealt:
        return
    fed = [loop for loop in context.loops.training if isinstance(loop, (ast.For, ast.AsyncFor))]
    for loader in {s: None for loop in fed for s in values.sites(loop.iter, "loader")}:
        data = argument(loader, 0, "dataset")
        if data is None or any(for_evaluation(w) for w in names_in(data)):
            continue
        made = made_of(context, data)
        share = next((one for one in dealt if any(script.contains(part, one) for part in made)), None)
        if share is not None:
            yield Hit(
                share,
                "some ranks get a sample more than others, and may have a batch more",
                "possible",
                related=((loader, "the loader"), (wrapped[0], "all ranks step together")),
            )


def _is_dealt_out(context: Context, node: ast.Subscript | ast.Call) -> bool:
    """`samples[rank::world]`, `range(rank, len(samples), world)`, `islice(samples, rank, None, world)`."""
    if isinstance(node, ast.Subscript):
        cut = node.slice
        if not isinstance(cut, ast.Slice) or cut.upper is not None:
            return False
        first, step = cut.lower, cut.step
    else:
        last = context.script.last_names[node]
        place = {"range": 0, "islice": 1}.get(last)
        if place is None or len(node.args) != place + 3:
            return False
        first, step = node.args[place], node.args[place + 2]
    if first is None or step is None:
        return False
    return context.ranks.mentions(first) and any(_RANKS.search(name) for name in names_in(step))
