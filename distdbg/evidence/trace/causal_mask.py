"""Judge from a script's source whether a mask that it gives to attention is a causal one and nothing else.

A trace has no values. Followed are the names of the file that the call is in: `mask = …`, `self.mask = …`,
`register_buffer("mask", …)`. Where one of several is something else, or cannot be followed, it is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

ATTENTION = "scaled_dot_product_attention"
#: What leaves a mask as it is, but for its type.
_KEEPS = {"cuda", "cpu", "unsqueeze", "contiguous", "clone", "detach", "to", "bool"}
_MASKS = "generate_square_subsequent_mask"
_BOOL = ("torch.bool", "bool")


def gives_causal_mask(call: ast.Call, tree: ast.Module) -> bool:
    """True where this call's mask is known to be causal, and nothing but that."""
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
    if called == "tril" and _diagonal(node) == 0 and _calls(of, "ones"):
        return "bool" if _has_type_bool(of) else "ones"
    if called == "triu" and _diagonal(node) == 1 and _calls(of, "full") and _is_minus_infinity(of):
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


def _calls(node: ast.expr, name: str) -> bool:
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
        elif isinstance(node, ast.Call) and _calls(node, "register_buffer") and len(node.args) > 1:
            first = node.args[0]
            if isinstance(first, ast.Constant) and first.value == name:
                yield node.args[1]
