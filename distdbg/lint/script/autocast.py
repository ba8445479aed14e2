"""Find where autocast is on, and in which dtype, as far as constants say."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context
from distdbg.lint.script.script import FUNCTIONS, argument, is_constant

_WITHS = (ast.With, ast.AsyncWith)


def regions(context: Context) -> Iterator[tuple[ast.With | ast.AsyncWith, ast.Call]]:
    """Every `with` that may turn autocast on, with the call that makes its context."""
    for block in context.script.all(*_WITHS):
        for item in block.items:
            for site in context.values.sites(item.context_expr, "autocast"):
                if not is_constant(argument(site, 0 if _of_cuda(context, site) else 2, "enabled"), False):
                    yield block, site
                    break


def dtype(context: Context, site: ast.Call) -> str:
    """`float16` or `bfloat16` where it is certain, else nothing. On a GPU float16 is the default."""
    if not context.script.call_names[site].startswith("torch."):
        return ""
    given = argument(site, 1, "dtype")
    if given is not None:
        last = context.script.dotted(given).rpartition(".")[2]
        return {"half": "float16", "float16": "float16", "bfloat16": "bfloat16"}.get(last, "")
    device = argument(site, 0, "device_type")
    on_gpu = _of_cuda(context, site) or (isinstance(device, ast.Constant) and device.value == "cuda")
    return "float16" if on_gpu and "set_autocast" not in context.script.text else ""


def _of_cuda(context: Context, site: ast.Call) -> bool:
    """`torch.cuda.amp.autocast`, which takes no device."""
    return context.script.call_names[site].endswith("cuda.amp.autocast")


def around(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    """The node and everything around it, through the callers of its function."""
    for one in context.values.ways_to(node):
        yield one
        yield from context.script.above(one)


def reaches(context: Context, node: ast.AST) -> bool:
    """May autocast be on here: by a `with` or a decorator above, or at one of the callers?"""
    blocks = {block for block, _ in regions(context)}
    return any(
        outer in blocks
        or (isinstance(outer, FUNCTIONS) and any("autocast" in ast.unparse(d) for d in outer.decorator_list))
        for outer in around(context, node)
    )
