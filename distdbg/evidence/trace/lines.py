"""Find the line of a call in the source: a trace knows only the function around it, and the name that is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.evidence.trace.places import TracePlace

#: Called without a name that a trace has: these read a tensor's value.
_READS = ("float", "int", "bool", "complex")
_MADE_OF = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of(source: str, place: TracePlace, kind: str = "") -> tuple[int, ...]:
    """Every line of that function with such a call; none where the source is another, or cannot be read."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    scope = _scope(tree, place)
    if scope is None:
        return ()
    if kind == "masked":
        return _masked(tree, scope, place)
    names = (place.callee,) if place.callee else _READS if kind == "wait" else ()
    return tuple(sorted({line for call in _calls(scope) if (line := _line(call, names))}))


def _masked(tree: ast.Module, scope: ast.AST, place: TracePlace) -> tuple[int, ...]:
    """The line of the call, where it is known, if its mask is surely causal; else of all such calls, if all are."""
    calls = [call for call in _calls(scope) if _line(call, (ATTENTION,))]
    if place.at:
        calls = [call for call in calls if call.lineno <= place.at <= (call.end_lineno or call.lineno)]
    if not calls or not all(gives_causal_mask(call, tree) for call in calls):
        return ()
    return (place.at,) if place.at else tuple(sorted({_line(call, (ATTENTION,)) or 0 for call in calls}))


def _scope(tree: ast.Module, place: TracePlace) -> ast.AST | None:
    """The function of this name that the line is in; of a lambda or a comprehension, itself."""
    name = place.function.rpartition(".")[2]
    if name == "<module>":
        return tree
    if name.startswith("<"):
        inner = [n for n in ast.walk(tree) if isinstance(n, _MADE_OF) and n.lineno == place.line]
        return inner[0] if len(inner) == 1 else None
    fits = [
        n for n in ast.walk(tree)
        if isinstance(n, _FUNCTIONS) and n.name == name and _first(n) <= place.line <= (n.end_lineno or n.lineno)
    ]  # fmt: skip
    return max(fits, key=_first, default=None)


def _first(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Python counts a function's decorators to it."""
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def _calls(scope: ast.AST) -> Iterator[ast.Call]:
    """Those of this function's own body: not of functions that are made in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (*_FUNCTIONS, ast.Lambda)):
            continue
        if isinstance(child, ast.ClassDef) and not isinstance(scope, ast.Module):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls(child)


def _line(call: ast.Call, names: tuple[str, ...]) -> int | None:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in names and names is not _READS:
        return function.end_lineno
    return call.lineno if isinstance(function, ast.Name) and function.id in names else None


ATTENTION = "scaled_dot_product_attention"
#: What leaves a mask as it is, but for its type.
_KEEPS = {"cuda", "cpu", "unsqueeze", "contiguous", "clone", "detach", "to", "bool"}
_MASKS = "generate_square_subsequent_mask"
_BOOL = ("torch.bool", "bool")


def gives_causal_mask(call: ast.Call, tree: ast.Module) -> bool:
    """Whether this call's mask is known to be causal, and nothing but that.

    A trace has no values, so the names of the call's file are followed: `mask = …`, `self.mask = …`,
    `register_buffer("mask", …)`. If one of several values is different or cannot be followed, the mask is not known.
    """
    given = next((k.value for k in call.keywords if k.arg == "attn_mask"), call.args[3] if len(call.args) > 3 else None)
    return given is not None and _form(given, tree, 4) in ("bool", "additive")


def _form(node: ast.expr, tree: ast.Module, depth: int) -> str:
    """bool (True is seen), additive (-inf is not), ones (numbers: as a mask they would be added); else ""."""
    if depth == 0:
        return ""
    if (name := _name(node)) is not None:
        forms = {_form(value, tree, depth - 1) if value is not None else "" for value in _values(tree, name)}
        return forms.pop() if len(forms) == 1 else ""
    if isinstance(node, ast.Subscript):
        return _form(node.value, tree, depth) if _is_square_cut(node.slice) else ""
    return _form_of_call(node, tree, depth) if isinstance(node, ast.Call) else ""


def _form_of_call(node: ast.Call, tree: ast.Module, depth: int) -> str:
    called, of = ast.unparse(node.func).rpartition(".")[2], _of(node)
    if of is None or called == _MASKS:
        return "additive" if called == _MASKS else ""
    if called == "tril" and _diagonal(node) == 0 and _is_call_of(of, "ones"):
        return "bool" if _has_type_bool(of) else "ones"
    if called == "triu" and _diagonal(node) == 1 and _is_call_of(of, "full") and _is_minus_infinity(of):
        return "additive"
    return _cast(node, called, _form(of, tree, depth)) if called in _KEEPS else ""


def _cast(node: ast.Call, called: str, form: str) -> str:
    """The form of the mask after one of _KEEPS: a conversion changes numbers and bools."""
    if called == "bool" or (called == "to" and _has_type_bool(node)):
        return "bool" if form in ("bool", "ones") else ""
    return form if called != "to" or form == "additive" else ""


def _has_type_bool(node: ast.expr) -> bool:
    given = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
    return any(ast.unparse(value) in _BOOL for value in given)


def _of(node: ast.Call) -> ast.expr | None:
    """What `torch.tril(x)` or `x.tril()` is about."""
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if owner is None or (isinstance(owner, ast.Name) and owner.id == "torch"):
        return node.args[0] if node.args else None
    return owner


def _diagonal(node: ast.Call) -> int | None:
    """0 where none is given, None where it is no number."""
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    place = 1 if owner is None or (isinstance(owner, ast.Name) and owner.id == "torch") else 0
    given = next((k.value for k in node.keywords if k.arg == "diagonal"), None)
    given = given or (node.args[place] if len(node.args) > place else None)
    if given is None:
        return 0
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else None


def _is_call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _is_minus_infinity(node: ast.expr) -> bool:
    """The value of torch.full."""
    value = node.args[1] if isinstance(node, ast.Call) and len(node.args) > 1 else None
    return value is not None and ast.unparse(value) in ("float('-inf')", "-float('inf')", "-torch.inf", "-math.inf")


def _is_square_cut(cut: ast.expr) -> bool:
    """`[:n, :n]`, and dimensions that are added or taken whole before them."""
    parts = cut.elts if isinstance(cut, ast.Tuple) else [cut]
    slices = [p for p in parts if isinstance(p, ast.Slice) and (p.lower or p.upper or p.step)]
    others = all(isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and p.value in (None, ...)) for p in parts)
    from_begin = all(p.lower is None and p.step is None for p in slices)
    return others and from_begin and len(slices) in (0, 2) and len({ast.unparse(p) for p in slices}) <= 1


def _name(node: ast.expr) -> str | None:
    """`mask` and `self.mask` are one name."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _values(tree: ast.Module, name: str) -> Iterator[ast.expr | None]:
    """All that the file gives to this name; None for what cannot be followed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if _name(target) == name:
                    yield node.value
                elif any(isinstance(n, ast.expr) and _name(n) == name for n in ast.walk(target)):
                    yield None
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and _name(node.target) == name and node.value is not None:
            yield node.value
        elif (isinstance(node, (ast.AugAssign, ast.For)) and _name(node.target) == name) or (
            isinstance(node, ast.arg) and node.arg == name
        ):
            yield None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _name(node.func.value) == name:
            if node.func.attr.endswith("_"):
                yield None  # changed in place
        elif isinstance(node, ast.Call) and _is_call_of(node, "register_buffer") and len(node.args) > 1:
            first = node.args[0]
            if isinstance(first, ast.Constant) and first.value == name:
                yield node.args[1]
