"""A layer is replaced after the optimizer was given the parameters: the new one is never trained."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint._kinds import WITH_PARAMETERS
from distdbg.lint._rule import Context, Hit
from distdbg.lint._script import argument
from distdbg.model import FindingDoc

DOCS = (
    FindingDoc(
        id="params-not-optimized",
        severity="warning",
        title="parameters that no optimizer holds",
        meaning="An optimizer holds the parameters that it was given. A layer that is put into the model afterwards "
        "gets gradients and is never stepped.",
        how_seen="In one function, a new module is assigned to an attribute of a model after an optimizer took "
        "model.parameters().",
        remedy="Build the optimizer after the model is complete, or add_param_group the new layer's parameters.",
        source="https://docs.pytorch.org/docs/stable/optim.html#constructing-it",
    ),
)


def check(context: Context) -> Iterator[Hit]:
    script, values = context.script, context.values
    if script.calls("add_param_group"):
        return
    for optimizer in values.of_kind("optimizer"):
        given = argument(optimizer, 0, "params")
        match given:
            case ast.Call(func=ast.Attribute(value=model, attr="parameters"), args=[], keywords=[]):
                pass
            case _:
                continue
        for assigned in script.all(ast.Assign):
            if (
                script.scopes[assigned] is not script.scopes[optimizer]
                or script.begin[assigned] < script.begin[optimizer]
            ):
                continue
            replaced = any(_replaces(context, t, model) for t in assigned.targets) and _is_new(context, assigned.value)
            if replaced and not _built_again(context, optimizer, assigned):
                yield Hit(
                    "params-not-optimized",
                    "warning",
                    "certain",
                    assigned,
                    "this layer comes after the optimizer took the parameters: it is never stepped",
                    related=((optimizer, "the optimizer"),),
                )


def _replaces(context: Context, target: ast.expr, model: ast.expr) -> bool:
    """`model.fc = …`, `model.heads[0] = …`, of that very model."""
    node = target.value if isinstance(target, ast.Subscript) else target
    while isinstance(node, ast.Attribute):
        node = node.value
        if context.values.key(node) == context.values.key(model) is not None:
            return True
    return False


def _is_new(context: Context, value: ast.expr) -> bool:
    """A layer of torch.nn that has parameters."""
    calls = [n for n in ast.walk(value) if isinstance(n, ast.Call)] if isinstance(value, ast.Call) else []
    names = {context.script.call_names[c] for c in calls}
    return any(n.startswith("torch.nn.") and n.rpartition(".")[2] in WITH_PARAMETERS for n in names)


def _built_again(context: Context, optimizer: ast.Call, after: ast.AST) -> bool:
    """Another optimizer is built below, as transfer learning does in stages."""
    return any(
        o is not optimizer and context.script.begin[o] > context.script.begin[after]
        for o in context.values.of_kind("optimizer")
    )
