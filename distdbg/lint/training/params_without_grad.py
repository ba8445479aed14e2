"""A layer is made in a model's `__init__`, and nothing ever calls it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.kinds import WITH_PARAMETERS, WRAPPERS_OF_MODELS
from distdbg.lint.script.script import argument, is_constant

#: what goes through the layers of a model without naming them, or takes parameters out of training
_BY_OTHER_MEANS = re.compile(
    r"getattr\s*\(|_modules\b|\.children\s*\(|named_children|named_modules|__dict__|get_submodule|"
    r"requires_grad(?:_\s*\(|\s*=)\s*False|find_unused_parameters\s*=\s*(?!False)|"
    r"(?<![.\w])(?:vars|locals|exec|eval)\s*\("  # and not model.eval()
)

#: without these words there is nothing to check
NEEDS = (WRAPPERS_OF_MODELS,)


def check(context: Context) -> Iterator[Hit]:
    script, values = context.script, context.values
    wraps = values.of_kind("ddp", "fsdp")
    if not wraps or context.frameworks:
        return
    made = {owner for call in script.all(ast.Call) if (owner := values.class_named(call.func)) is not None}
    bases = {values.class_named(base) for one in script.all(ast.ClassDef) for base in one.bases}
    owners = [o for o in script.all(ast.ClassDef) if o in made and o not in bases and _is_module(context, o)]
    text = "\n".join(file.text for file in script.files.values()) if owners else ""
    for owner in owners if not _BY_OTHER_MEANS.search(text) else ():
        for layer, name in _layers(context, owner):
            if len(re.findall(rf"\b{re.escape(name)}\b", text)) == 1:
                yield Hit(
                    layer,
                    f"nothing in the files read here uses `{name}` of {owner.name}: its parameters get no gradient",
                    related=((wraps[0], "where the model is wrapped"),),
                )


def _is_module(context: Context, owner: ast.ClassDef) -> bool:
    """Whether the class derives from torch.nn.Module alone and has its own forward: no other base can use the layer."""
    methods = {one.name for one in owner.body if isinstance(one, ast.FunctionDef)}
    names = [context.script.dotted(base) for base in owner.bases]
    return names == ["torch.nn.Module"] and "forward" in methods


def _layers(context: Context, owner: ast.ClassDef) -> Iterator[tuple[ast.Assign, str]]:
    """`self.name = torch.nn.Linear(…)` in __init__, below no `if`."""
    begins = [one for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    for statement in begins[0].body if begins else ():
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call() as call):
                whole = context.script.call_names[call]
                if whole.startswith("torch.nn.") and whole.rpartition(".")[2] in WITH_PARAMETERS and _has_any(call):
                    yield statement, name


def _has_any(call: ast.Call) -> bool:
    """A norm can be created without parameters."""
    return not any(is_constant(argument(call, -1, name), False) for name in ("affine", "elementwise_affine"))
