"""Find tensors that a module keeps as plain attributes: `.to(device)` does not move these."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.lint.rule import Context
from distdbg.lint.script.devices import to_gpu
from distdbg.lint.script.script import FUNCTIONS, Function, argument, has_stars

#: What a file may do so that new tensors are on the GPU from the start.
_ELSEWHERE = re.compile(r"set_default_device|set_default_tensor_type|with\s+torch\.device|torch\.cuda\.FloatTensor")
_SIZED = {"zeros", "ones", "randn", "rand", "full"}
_ROWS = {"arange", "linspace", "eye"}


@dataclass(frozen=True)
class Mixed:
    """`operation` computes with the tensor and an argument of its method; the tensor was `made` in the class."""

    operation: ast.BinOp
    name: str
    made: ast.stmt
    moved: ast.Call


def plain_tensors(context: Context) -> Iterator[Mixed]:
    """Operations of a plain tensor attribute with an argument of a method, in a class whose object is moved to a
    GPU."""
    modules = [owner for owner in context.script.all(ast.ClassDef) if context.script.is_module(owner)]
    keep = {owner: kept for owner in modules if (kept := _kept(context, owner))}
    moved_classes = _moved_classes(context) if keep and not _ELSEWHERE.search(context.script.text) else {}
    for owner in keep.keys() & moved_classes.keys():
        moved = moved_classes[owner]
        for name, made in keep[owner].items():
            operation = _meets(context, owner, name, made)
            if operation is not None:
                yield Mixed(operation, name, made, moved)


def _moved_classes(context: Context) -> dict[ast.ClassDef, ast.Call]:
    """Modules of the file with an object on a GPU, directly or as a part of another."""
    found: dict[ast.ClassDef, ast.Call] = {}
    for call in context.script.calls("to", "cuda"):
        if isinstance(call.func, ast.Attribute) and to_gpu(call):
            moved = call.func.value
            for site in (*context.values.sites(moved, "instance"), *([moved] if isinstance(moved, ast.Call) else ())):
                owner = context.values.class_named(site.func)
                if owner is not None:
                    found.setdefault(owner, call)
    todo = list(found)
    while todo:
        outer = todo.pop()
        for call in context.script.within(outer, ast.Call):
            part = context.values.class_named(call.func)
            if part is not None and part not in found:
                found[part] = found[outer]
                todo.append(part)
    return {
        owner: call for owner, call in found.items() if context.script.is_module(owner) and not _moves_itself(owner)
    }


def _moves_itself(owner: ast.ClassDef) -> bool:
    own = {f.name for f in owner.body if isinstance(f, FUNCTIONS)}
    return not own.isdisjoint({"to", "cuda", "_apply", "__setattr__", "__getattr__"})


def _kept(context: Context, owner: ast.ClassDef) -> dict[str, ast.stmt]:
    """Attributes that are given a tensor of the host in __init__, and nothing else anywhere."""
    given: dict[str, list[ast.Assign]] = defaultdict(list)
    for statement in context.script.within(owner, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Attribute) and _is_self(target.value):
                given[target.attr].append(statement)
    return {
        name: statements[0]
        for name, statements in given.items()
        if len(statements) == 1
        and _has_rows(context, statements[0].value)
        and getattr(context.script.function_of(statements[0]), "name", "") == "__init__"
    }


def _has_rows(context: Context, value: ast.expr) -> bool:
    """A new tensor of at least one dimension on the host; one of none may meet any device."""
    if not isinstance(value, ast.Call) or argument(value, -1, "device") is not None or has_stars(value):
        return False
    module, _, last = context.script.call_names[value].rpartition(".")
    first = value.args[0] if value.args else None
    if module != "torch" or first is None:
        return False
    if last in _ROWS:
        return True
    if last == "tensor":
        return isinstance(first, (ast.List, ast.ListComp)) or (isinstance(first, ast.Tuple) and bool(first.elts))
    return last in _SIZED and not (isinstance(first, (ast.Tuple, ast.List)) and not first.elts)


def _meets(context: Context, owner: ast.ClassDef, name: str, made: ast.stmt) -> ast.BinOp | None:
    """The first operation with it, where it is never mentioned in any other way: moved, handed on, replaced."""
    found: ast.BinOp | None = None
    script = context.script
    for mention in script.all(ast.Attribute):
        if mention.attr != name or script.contains(made, mention):
            continue
        above, method = script.parents[mention], script.function_of(mention)
        if method is None or not _is_self(mention.value) or not script.contains(owner, mention):
            return None
        if not isinstance(above, ast.BinOp):
            return None
        other = above.right if above.left is mention else above.left
        if isinstance(other, ast.Name) and method.name == "forward" and other.id in _tensors(context, method):
            found = found or above
    return found


def _tensors(context: Context, method: Function) -> set[str]:
    """Arguments that are tensors and stay what was given: the first one, and what is annotated so.

    A number may meet a tensor of any device; so may what the method has put in an argument's place.
    """
    script, first = context.script, [*method.args.posonlyargs, *method.args.args][1:2]
    named = [a for a in first if a.annotation is None] + [
        a for a in method.args.args if a.annotation is not None and script.dotted(a.annotation).endswith("Tensor")
    ]
    rebound = {n.id for n in script.within(method, ast.Name) if not isinstance(n.ctx, ast.Load)}
    taken, defaults = [*method.args.posonlyargs, *method.args.args], len(method.args.defaults)
    return {a.arg for a in named} - rebound - {a.arg for a in taken[len(taken) - defaults :]}


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
