"""One half of a batch is moved to the GPU, and the loss gets the other half as the loader gave it; or a module is
moved, and a tensor that it keeps as a plain attribute stays where it was made."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.devices import to_gpu
from distdbg.lint.script.plain_tensors import plain_tensors
from distdbg.lint.script.script import Loop

_LOSS = re.compile(r"^torch\.nn\.(?:\w+Loss|functional\.(?:\w+_loss|cross_entropy|binary_cross_entropy\w*|kl_div))$")
#: a script that names no other device than the CPU has nothing to mix
_ON_CPU, _ON_GPU = re.compile(r"[\"']cpu[\"']"), re.compile(r"cuda|xpu|mps|hpu|npu|accelerator")
_READ = {"size", "shape", "dim", "numel", "dtype"}

#: without these words there is nothing to check
NEEDS = ({"to(", "cuda("}, re.compile(r"Loss|_loss$|cross_entropy|kl_div|^Module$"))


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    if context.frameworks or (_ON_CPU.search(script.text) and not _ON_GPU.search(script.text)):
        return
    for kept in plain_tensors(context):
        text = f"self.{kept.name} stays on the host when the module is moved: it is no buffer"
        yield Hit(kept.operation, text, related=((kept.made, "made here"), (kept.moved, "moved here")))
    for loop in script.all(ast.For):
        names = list(_batch(loop.target))
        moved = [name for name in names if _moves(context, loop, name)]
        if not 0 < len(moved) < len(names) or context.loops.kinds.get(loop) != "batch" or _comes_back(context, loop):
            continue
        for name in names:
            call = _only_for_a_loss(context, loop, name) if name not in moved else None
            if call is not None:
                text = f"{script.source(call)[:60]} gets `{name}` from the host, and `{moved[0]}` was moved to the GPU"
                yield Hit(call, text, related=((loop, "where the batch comes from"),))


def _batch(target: ast.expr) -> Iterator[str]:
    """`images, labels`; in `step, (images, labels)` the inner ones."""
    if isinstance(target, ast.Tuple):
        inner = [one for one in target.elts if isinstance(one, ast.Tuple)]
        if inner:
            yield from _batch(inner[-1])
        elif all(isinstance(one, ast.Name) for one in target.elts):
            yield from (one.id for one in target.elts if isinstance(one, ast.Name))


def _moves(context: Context, loop: Loop, name: str) -> bool:
    """`x = x.to(device)`, also as one of several on a line."""
    for assigned in context.script.within(loop, ast.Assign):
        values = assigned.value.elts if isinstance(assigned.value, ast.Tuple) else [assigned.value]
        for value in values:
            match value:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=known), attr="to" | "cuda")) if known == name:
                    return to_gpu(value)
    return False


def _comes_back(context: Context, loop: Loop) -> bool:
    """Something is taken to the host in the loop: the loss may be computed there."""
    script = context.script
    return any(n.attr in ("cpu", "numpy") for n in script.within(loop, ast.Attribute)) or any(
        n.value == "cpu" for n in script.within(loop, ast.Constant)
    )


def _only_for_a_loss(context: Context, loop: Loop, name: str) -> ast.Call | None:
    """The loss that gets it as it is, where that is all that is done with it, besides asking for its size."""
    script, found = context.script, None
    for mention in script.within(loop, ast.Name):
        if mention.id != name or script.contains(loop.target, mention):  # type: ignore[union-attr]
            continue
        match script.parents[mention]:
            case ast.Attribute(attr=attr) if attr in _READ:
                continue
            case ast.Call(args=args) as call if mention in args and _is_loss(context, call):
                found = found or call
            case ast.Call(func=ast.Name(id="len")):
                continue
            case _:
                return None
    return found


def _is_loss(context: Context, call: ast.Call) -> bool:
    names = {context.script.call_names[call], *(context.script.call_names[c] for c in context.values.sites(call.func))}
    return any(_LOSS.match(name) for name in names)
