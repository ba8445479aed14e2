"""Find expressions that carry the autograd graph of a loss that goes backward.

Carriers are what `backward` is called on, the losses that it is the sum of, the outputs of a model that it is computed
of, and everything that is made of a carrier by arithmetic, by a container, by a method of the tensor, as the result of
a function, or as a parameter that is given one. `item`, `detach`, `float` and the like end a graph.

Limits: a variable carries a graph unless its last assignment above, in the order of the source, ends it. Containers
count as a whole. A tensor that never goes backward is not known to carry a graph.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import defaultdict
from collections.abc import Iterator

from distdbg.lint.rule import Context
from distdbg.lint.script.events import carrier
from distdbg.lint.script.given import parameter_of
from distdbg.lint.script.kept import FREES, LOSS, terms
from distdbg.lint.script.script import Function, Key, names_in, receiver

_MAX_PASSES = 4
#: a sum of these parts is a loss
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)


class GraphCarriers:
    """`backward_of` has the call that shows that a variable carries a graph; `summed` are those that go backward."""

    def __init__(self, context: Context) -> None:
        self._context, self._script, self._values = context, context.script, context.values
        self.backward_of: dict[Key, ast.Call] = {}
        for call in context.events.of("backward"):
            if isinstance(call, ast.Call) and (name := carrier(call)) is not None:
                place = self._script.function_of(call) or self._script.module_of(call)
                self.backward_of.setdefault((place, name), call)
        self._add_parts()
        self._ends = self._find_ends()
        self.summed = frozenset(self.backward_of)
        self._add_outputs()
        self._returned: dict[Function, list[ast.expr]] = {}
        for returned in self._script.all(ast.Return):
            function = self._script.function_of(returned)
            if function is not None and returned.value is not None:
                self._returned.setdefault(function, []).append(returned.value)
        for _ in range(_MAX_PASSES if self.backward_of else 0):
            before = len(self.backward_of)
            self._spread()
            if len(self.backward_of) == before:
                break

    def carried(self, value: ast.AST) -> ast.Call | None:  # noqa: PLR0911 -- one line a form
        """The backward call that shows that the value carries a graph; None if it carries none."""
        match value:
            case ast.Name() | ast.Attribute():
                return self._of_variable(value)
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
                return self.carried(left) or self.carried(right)
            case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
                return self.carried(inner)
            case ast.IfExp(body=body, orelse=orelse):
                return self.carried(body) or self.carried(orelse)
            case ast.Dict(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
                return next(filter(None, map(self.carried, parts)), None)
            case ast.Call():
                return self._of_call(value)
        return None

    def _of_variable(self, node: ast.Name | ast.Attribute) -> ast.Call | None:
        if isinstance(node, ast.Attribute) and node.attr in FREES:
            return None
        key = self._values.key(node)
        backward = self.backward_of.get(key) if key is not None else None
        if backward is None:
            return None
        begin, here = self._script.begin, self._script.begin[node]
        ended = max((place for place in self._ends.get(key, ()) if place < here), default=-1)
        begun = max((begin[a] for a in self._values.assignments(node) if begin[a] < here), default=-1)
        return None if ended >= 0 and ended >= begun else backward

    def _find_ends(self) -> dict[Key | None, list[int]]:
        """Places that free a variable, or a part of it, of its graph: `x["a"] = x["a"].item()`, `x.detach_()`."""
        found: dict[Key | None, list[int]] = defaultdict(list)
        for assigned in self._script.all(ast.Assign):
            if names_in(assigned.value) & FREES and not isinstance(assigned.value, ast.Dict):  # a part may carry one
                for target in assigned.targets:
                    for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                        found[self._values.key(_root(one))].append(self._script.begin[assigned])
        for call in self._script.calls("detach_"):
            found[self._values.key(_root(receiver(call) or call))].append(self._script.begin[call])
        return found

    def _of_call(self, call: ast.Call) -> ast.Call | None:
        """`loss.mean().cpu()`, `reduce(loss)` of a function out of sight, or of one that returns a carrier."""
        if names_in(call.func) & FREES:
            return None
        name, root = self._script.call_names[call], self._script.call_names[call].partition(".")[0]
        known = hasattr(builtins, root) or root in sys.stdlib_module_names or root == "numpy"
        if name.startswith(("torch.", "sum")) or (len(call.args) == 1 and not known and not self._values.callees(call)):
            return next(filter(None, map(self.carried, call.args)), None)
        if isinstance(call.func, ast.Attribute) and (backward := self.carried(call.func.value)) is not None:
            return backward
        returned = (value for f in self._values.callees(call) for value in self._returned.get(f, ()))
        return next((b for v in returned if not isinstance(v, ast.Tuple) and (b := self.carried(v))), None)

    def _add_parts(self) -> None:
        """`ce` and `kl` of `loss = ce + 0.1 * kl`: names that say loss, and that this function makes."""
        for assigned in reversed(self._script.all(ast.Assign)):
            keys = map(self._values.key, assigned.targets)
            backward = next((self.backward_of[key] for key in keys if key in self.backward_of), None)
            for part in terms(assigned.value) if backward is not None else ():
                key = self._values.key(part)
                if backward is not None and key is not None and LOSS.search(part.id) and self._is_made(part):
                    self.backward_of.setdefault(key, backward)

    def _is_made(self, name: ast.Name) -> bool:
        """By the function itself, alone or in a tuple: a factor that is a parameter is a number."""
        place = self._script.function_of(name) or self._script.module_of(name)
        return any(n.id == name.id and isinstance(n.ctx, ast.Store) for n in self._script.within(place, ast.Name))

    def _add_outputs(self) -> None:
        """`out` of `loss = criterion(out, y)`, if `out` is the result of a model whose constructor is in sight."""
        for assigned in self._script.all(ast.Assign):
            backward = next((self.backward_of.get(key) for t in assigned.targets if (key := self._values.key(t))), None)
            if backward is None or not isinstance(assigned.value, ast.Call):
                continue
            for given in assigned.value.args:
                key = self._values.key(given)
                if key is not None and any(map(self._is_output, self._values.bound(given))):
                    self.backward_of.setdefault(key, backward)

    def _is_output(self, value: ast.expr) -> bool:
        sites = self._values.sites(value.func) if isinstance(value, ast.Call) else set()
        owners = [self._values.class_named(site.func) for site in sites]
        of_this_file = any(owner is not None and self._script.is_module(owner) for owner in owners)
        return of_this_file or any(self._values.kind(site) in ("ddp", "fsdp", "module") for site in sites)

    def _spread(self) -> None:
        for assigned in self._script.all(ast.Assign):
            for target, value in self._pairs(assigned.targets[0], assigned.value):
                key, backward = self._values.key(target), self.carried(value)
                if key is not None and backward is not None:
                    self.backward_of.setdefault(key, backward)
        for call in self._script.all(ast.Call):
            for given in (*call.args, *(k.value for k in call.keywords)):
                backward = self.carried(given) if isinstance(given, (ast.Name, ast.Attribute)) else None
                for function in self._values.callees(call) if backward is not None else ():
                    name = parameter_of(function, call, given)
                    if name and backward is not None:
                        self.backward_of.setdefault((function, name), backward)

    def _pairs(self, target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Each target with its value; the parts of a tuple one by one, those of a function's result, too."""
        if not isinstance(target, ast.Tuple):
            yield target, value
            return
        values = [value]
        if isinstance(value, ast.Call):
            values = [v for f in self._values.callees(value) for v in self._returned.get(f, ())]
        for one in values:
            if isinstance(one, ast.Tuple) and len(one.elts) == len(target.elts):
                yield from zip(target.elts, one.elts, strict=True)


def _root(node: ast.expr) -> ast.expr:
    """`x` of `x["loss"]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node
