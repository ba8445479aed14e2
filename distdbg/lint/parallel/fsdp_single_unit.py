"""FSDP that wraps the whole model as one unit: all of it is gathered at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, has_stars

_INSIDE = re.compile(r"\bwrap\(|auto_wrap|enable_wrap|ModuleWrapPolicy|apply_fsdp|parallelize|_policy")
_REPEATS = (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp, ast.Lambda)

#: without these words there is nothing to check
NEEDS = ({"FullyShardedDataParallel", "FSDP", "fully_shard"},)


def check(context: Context) -> Iterator[Hit]:
    sites = context.values.of_kind("fsdp")
    if len(sites) != 1 or _INSIDE.search(context.script.text) or context.frameworks:
        return
    site = sites[0]
    if context.script.loops_around(site) or any(isinstance(outer, _REPEATS) for outer in context.script.above(site)):
        return
    if has_stars(site) or argument(site, 3, "auto_wrap_policy") is not None:
        return
    if not site.args and not context.script.calls("fully_shard"):
        return
    yield Hit(
        site,
        "the whole model is one FSDP unit: each forward pass gathers all of its parameters at once",
        severity="info",
    )
