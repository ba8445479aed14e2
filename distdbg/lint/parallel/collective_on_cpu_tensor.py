"""A collective of NCCL gets a tensor of the host."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.collectives import TENSOR_PLACE
from distdbg.lint.script.script import argument, has_stars

_MAKES = frozenset((
    "tensor", "zeros", "ones", "empty", "full", "rand", "randn", "arange", "FloatTensor", "LongTensor", "IntTensor",
    "DoubleTensor", "BoolTensor", "from_numpy",
))  # fmt: skip

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = (set(TENSOR_PLACE), {"nccl", "NCCL"})
#: a backend for the host, or tensors that are made on the GPU by default
UNLESS = re.compile(
    r"gloo|\bmpi\b|ucc|set_default_device|set_default_tensor_type|cpu:|with\s+torch\.(?:cuda\.)?device", re.IGNORECASE
)


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    for call in script.calls(*TENSOR_PLACE):
        last = script.last_names[call]
        if script.call_names[call] != f"torch.distributed.{last}" or argument(call, -1, "group") is not None:
            continue
        place = TENSOR_PLACE[last]
        tensor = argument(call, place, "tensor")
        made = _made_on_the_host(context, tensor) if tensor is not None else None
        if made is not None:
            text = f"{last} gets a tensor of the host, and NCCL moves tensors of a GPU only: the call raises"
            yield Hit(call, text, related=((made, "made here, without a device"),))


def _made_on_the_host(context: Context, tensor: ast.expr) -> ast.Call | None:
    """The constructor, where every value that the variable can have is such a constructor."""
    values: list[ast.expr] = [tensor] if isinstance(tensor, ast.Call) else context.values.bound(tensor)
    if isinstance(tensor, ast.Name) and any(_bound_otherwise(context, tensor)):
        return None
    made = [value for value in values if isinstance(value, ast.Call) and _is_of_the_host(context, value)]
    return made[0] if made and len(made) == len(values) else None


def _is_of_the_host(context: Context, call: ast.Call) -> bool:
    name, last = context.script.call_names[call], context.script.last_names[call]
    plain = argument(call, -1, "device") is None and not has_stars(call)
    return plain and last in _MAKES and name == f"torch.{last}"


def _bound_otherwise(context: Context, name: ast.Name) -> Iterator[ast.AST]:
    """By a loop, a `with`, a tuple or a parameter: its value is not in sight."""
    script = context.script
    function = script.function_of(name)
    place = function or script.module_of(name)
    for other in script.within(place, ast.Name):
        if other.id == name.id and isinstance(other.ctx, ast.Store):
            parent = script.parents[other]
            if not (isinstance(parent, ast.Assign) and other in parent.targets):
                yield other
    if function is not None:
        arguments = function.args
        yield from (a for a in (*arguments.args, *arguments.kwonlyargs) if a.arg == name.id)
