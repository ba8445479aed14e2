"""FSDP that wraps the whole model as one unit: all of it is gathered at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.findings import lint_entries
from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, has_stars

DOCS = lint_entries("fsdp-single-unit")
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
