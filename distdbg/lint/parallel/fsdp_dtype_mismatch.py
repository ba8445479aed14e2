"""FSDP with mixed precision over a model that is of half precision itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import Key, argument, has_stars

_HALVES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16"}
_DEVICE = re.compile(r"device|rank|gpu|cuda", re.IGNORECASE)
_OTHERS = ("reduce_dtype", "buffer_dtype", "output_dtype")

#: without these words there is nothing to check
NEEDS = ({"MixedPrecisionPolicy", "MixedPrecision"},)


def check(context: Context) -> Iterator[Hit]:
    policies = context.script.calls("MixedPrecisionPolicy", "MixedPrecision")
    if len(policies) != 1 or has_stars(policies[0]):
        return
    policy = policies[0]
    asked = _dtype(context, argument(policy, 0, "param_dtype"))
    others = [_dtype(context, argument(policy, place, name)) for place, name in enumerate(_OTHERS, start=1)]
    given = [argument(policy, place, name) for place, name in enumerate(_OTHERS, start=1)]
    if not asked or any(one is not None and dtype != asked for one, dtype in zip(given, others, strict=True)):
        return
    made = dict(_made_half(context))
    for site in context.values.of_kind("fsdp"):
        uses = has_stars(site) or any(k.arg in ("mp_policy", "mixed_precision") for k in site.keywords)
        key = context.values.key(site.args[0]) if site.args else None
        where = made.get(key) if uses and key is not None else None
        if where is not None and where[0] == asked:
            yield Hit(
                policy,
                f"there is no float32 to keep: the model that this is for is in {asked} already",
                related=((where[1], f"made {asked}"),),
            )
            return


def _made_half(context: Context) -> Iterator[tuple[Key, tuple[str, ast.AST]]]:
    """Variables that are made of half precision, in place or by an assignment; none that a `.float()` is called on."""
    values, script = context.values, context.script
    methods = [c for c in script.calls("float", "double", "to", "type") if isinstance(c.func, ast.Attribute)]
    widened = {values.key(c.func.value) for c in methods if isinstance(c.func, ast.Attribute) and _widens(context, c)}
    for call in script.calls(*_HALVES, "to", "from_pretrained"):
        dtype = _given(context, call)
        statement = script.statement_of(call)
        if not dtype or not isinstance(call.func, ast.Attribute):
            continue
        if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
            key = values.key(statement.targets[0])
        elif isinstance(statement, ast.Expr) and statement.value is call:  # modules are changed in place
            key = values.key(call.func.value)
        else:
            continue
        if key is not None and key not in widened:
            yield key, (dtype, call)


def _widens(context: Context, call: ast.Call) -> bool:
    """`.float()`, `.to(torch.float32)`, and what may be: `.to(dtype)`, `.to(other)`."""
    given = [*call.args, *(k.value for k in call.keywords if k.arg in ("dtype", "other"))]
    if context.script.last_names[call] in ("float", "double"):
        return True
    words = [one for one in given if isinstance(one, (ast.Name, ast.Attribute))]
    names = [context.script.dotted(one).rpartition(".")[2] for one in words]
    return any(name not in _HALVES and not _DEVICE.search(name) for name in names)


def _given(context: Context, call: ast.Call) -> str:
    """The half-precision type that this call makes its object of; empty for any other."""
    last = context.script.last_names[call]
    if last in _HALVES:
        return _HALVES[last]
    found = argument(call, -1, "dtype") or argument(call, -1, "torch_dtype")
    if found is None and last == "to":
        found = next((one for one in call.args if _dtype(context, one)), None)
    return _dtype(context, found)


def _dtype(context: Context, node: ast.expr | None) -> str:
    name = context.script.dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    return _HALVES.get(name.removeprefix("torch."), "") if name.startswith("torch.") else ""
