"""Find in a script's text the call of a store of torch.distributed that waits for a key, and work out the key.

A store's methods are C functions: no stack frame has their arguments. What the line says is computed as far as it
consists of constants and of variables whose values are known; nothing of the script is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

#: Methods that wait until a key is set, and the name of the argument that has it.
_WAITS = {"get": "key", "wait": "keys", "multi_get": "keys"}
#: Methods that set one; `append` and `add` make a key, too.
_SETS = frozenset({"set", "add", "append", "compare_set", "multi_set"})
#: A part of a key that is not known.
HOLE = "\0"
_MOST_PARTS = 64
#: `f"{step:05d}"`
_DIGITS = re.compile(r"0?\d{0,2}d?")
_WHOLE = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True, eq=False)
class StoreCall:
    """`text` is the expression of the key as it is written; of several keys, a list."""

    line: int
    receiver: str
    method: str
    text: str
    expression: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """The variables that say which key it is, and whether the object is a store."""
        found = {node.id for node in ast.walk(self.expression) if isinstance(node, ast.Name)}
        return frozenset({*found, self.receiver})

    @property
    def parts(self) -> list[ast.expr]:
        """The expressions of its keys."""
        return self.expression.elts if isinstance(self.expression, (ast.List, ast.Tuple)) else [self.expression]

    def keys(self, variables: Mapping[str, str]) -> tuple[str, ...]:
        """`variables` are reprs by name. HOLE stands in a key for what is not known of it."""
        found = (_value(part, variables) for part in self.parts)
        return tuple(key if isinstance(key, str) else HOLE for key in found)

    def is_of_a_store(self, variables: Mapping[str, str]) -> bool:
        """By the type of the object, where it is known; else by its name."""
        told = variables.get(self.receiver)
        return "Store" in told if told is not None else "store" in self.receiver.lower()


def waiting_call(source: str, line: int) -> StoreCall | None:
    """The only call at this line that may wait for a key of a store."""
    found = [call for call in _calls(source, frozenset(_WAITS)) if call.line <= line <= _end(call)]
    return found[0] if len(found) == 1 else None


def setting_calls(source: str) -> tuple[StoreCall, ...]:
    """All calls that may set a key of a store."""
    return tuple(call for call in _calls(source, _SETS) if call.is_of_a_store({}))


@lru_cache(maxsize=256)
def _calls(source: str, methods: frozenset[str]) -> tuple[StoreCall, ...]:
    if not any(f".{method}(" in source for method in methods):
        return ()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(sorted(_found(tree, methods), key=lambda call: call.line))


def _found(tree: ast.Module, methods: frozenset[str]) -> Iterator[StoreCall]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in methods:
                given, named = node.args, node.keywords
                first = given[0] if given else next((k.value for k in named if k.arg == _WAITS.get(method)), None)
                receiver = _last_name(owner)
                if first is not None and receiver:
                    yield StoreCall(node.lineno, receiver, method, ast.unparse(first), first)


def _end(call: StoreCall) -> int:
    return call.expression.end_lineno or call.line


def _last_name(owner: ast.expr) -> str:
    match owner:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return _last_name(function)
    return ""


def _value(node: ast.expr, variables: Mapping[str, str]) -> str | int | None:  # noqa: PLR0911 -- one line a form
    """None where it is not known, or is neither text nor a whole number."""
    match node:
        case ast.Constant(value=str() | int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return _of_repr(variables.get(name, ""))
        case ast.JoinedStr(values=parts) if len(parts) <= _MOST_PARTS:
            return _joined([_part(part, variables) for part in parts])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = _value(left, variables), _value(right, variables)
            if isinstance(one, int) and isinstance(other, int):
                return one + other
            return _joined([one, other]) if isinstance(one, str) or isinstance(other, str) else None
        case ast.BinOp(left=ast.Constant(value=str(form)), op=ast.Mod(), right=right):
            return _formatted(form, right, variables)
        case ast.Call(func=ast.Name(id="str"), args=[inner], keywords=[]):
            return _joined([_value(inner, variables)])
    return None


def _part(part: ast.expr, variables: Mapping[str, str]) -> str | int | None:
    match part:
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _value(value, variables)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=ast.JoinedStr(values=[form])):
            known, spec = _value(value, variables), str(form.value) if isinstance(form, ast.Constant) else "?"
            return format(known, spec) if isinstance(known, int) and _DIGITS.fullmatch(spec) else None
        case ast.Constant():
            return _value(part, variables)
    return None


def _joined(parts: list[str | int | None]) -> str | None:
    return "".join(HOLE if part is None else str(part) for part in parts)


def _formatted(form: str, right: ast.expr, variables: Mapping[str, str]) -> str | None:
    given = [_value(one, variables) for one in (right.elts if isinstance(right, ast.Tuple) else [right])]
    pieces = re.split(r"%[sd]", form)
    if len(pieces) != len(given) + 1 or any("%" in piece for piece in pieces):
        return None
    values = (HOLE if value is None else str(value) for value in given)
    return pieces[0] + "".join(value + piece for value, piece in zip(values, pieces[1:], strict=True))


def _of_repr(text: str) -> str | int | None:
    """py-spy quotes a string, and cuts a long one."""
    if len(text) > 1 and text[0] == text[-1] == '"' and not text.endswith('..."') and "\\" not in text:
        return text[1:-1]
    return int(text) if _WHOLE.fullmatch(text) else None
