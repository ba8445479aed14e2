"""FSDP that wraps the whole model as one unit: all of it is gathered at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint._rule import Context, Hit
from distdbg.lint._script import argument, has_stars
from distdbg.model import FindingDoc

DOCS = (
    FindingDoc(
        id="fsdp-single-unit",
        severity="warning",
        title="FSDP with the whole model as one unit",
        meaning="One unit is gathered whole in each forward pass: the peak holds all parameters, as without FSDP, and "
        "nothing overlaps with the gathering.",
        how_seen="The file wraps one model, once, without an auto_wrap_policy and with no wrapped layer inside it.",
        remedy="Wrap each block as well: an auto_wrap_policy, or fully_shard(block) before fully_shard(model).",
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
)
_INSIDE = re.compile(r"\bwrap\(|auto_wrap|enable_wrap|ModuleWrapPolicy|apply_fsdp|parallelize|_policy")


def check(context: Context) -> Iterator[Hit]:
    sites = context.values.of_kind("fsdp")
    if len(sites) != 1 or _INSIDE.search(context.script.text) or context.frameworks:
        return
    site = sites[0]
    if context.script.loops_around(site) or has_stars(site) or _in_comprehension(context, site):
        return
    if argument(site, 3, "auto_wrap_policy") is not None or (
        context.script.calls("fully_shard") == [] and not site.args
    ):
        return
    yield Hit(
        "fsdp-single-unit",
        "info",
        "likely",
        site,
        "the whole model is one FSDP unit: each forward pass gathers all of its parameters at once",
    )


def _in_comprehension(context: Context, node: ast.AST) -> bool:
    kinds = (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp, ast.Lambda)
    return any(isinstance(outer, kinds) for outer in context.script.above(node))
