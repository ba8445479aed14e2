"""Does a line run on some ranks only? Read from the script's own source, which is parsed and never run.

A line is conditional where it stands in a branch of an `if` that asks for the rank, or behind an `if` that asks for
the rank and then leaves. What asks for the rank is told by the field's own names and by what was assigned from them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

_NAMES = re.compile(
    r"^(?:(?:get_)?(?:(?:global|fs_local|local|node|world|my|dist|ddp|dp|tp|pp|data_parallel|process)_)?rank|is_(?:local_|global_|world_|rank_)?"
    r"(?:main|master|primary|chief|zero|rank0|rank_0|main_process|process_zero|rank_zero|global_zero)(?:_process)?|"
    r"is_rank_?(?:zero|0)|(?:local_)?process_index|master_process|main_process)$",
    re.IGNORECASE,
)
_VARIABLES = {"RANK", "LOCAL_RANK", "GROUP_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


@dataclass(frozen=True)
class Condition:
    """The `if` at `line` (1-based) whose test is `test`; `otherwise` where the line runs when it does not hold."""

    line: int
    test: str
    otherwise: bool


def condition_of(source: str, line: int) -> Condition | None:
    """Why `line` runs on some ranks only; None where nothing says so, or the source is no Python."""
    return _conditions(source).get(line)


@lru_cache(maxsize=64)
def _conditions(source: str) -> dict[int, Condition]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    tainted = names_for_rank(list(ast.walk(tree)))
    found: dict[int, Condition] = {}
    for node in ast.walk(tree):
        for body in _blocks(node):
            _left_behind(body, tainted, found)
    for node in ast.walk(tree):  # outer ones first: the innermost `if` has the last word
        if isinstance(node, ast.If) and asks(node.test, tainted):
            test = ast.unparse(node.test)
            _mark(node.body, Condition(node.lineno, test, False), found)
            _mark(node.orelse, Condition(node.lineno, test, True), found)
    return found


def _left_behind(body: list[ast.stmt], tainted: set[str], found: dict[int, Condition]) -> None:
    """Marks what stands behind `if rank != 0: return` in one block."""
    for number, statement in enumerate(body):
        if isinstance(statement, ast.If) and asks(statement.test, tainted) and isinstance(statement.body[-1], _LEAVES):
            _mark(body[number + 1 :], Condition(statement.lineno, ast.unparse(statement.test), True), found)


def _mark(body: list[ast.stmt], condition: Condition, found: dict[int, Condition]) -> None:
    for statement in body:
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            found[line] = condition


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def names_for_rank(nodes: Iterable[ast.AST], known: Iterable[str] = ()) -> set[str]:
    """Names that stand for the rank or for a question about it: `main = rank == 0`, `def is_first(): return …`.

    Only what is assigned from such an expression itself counts: a seed that was computed from the rank does not.
    """
    nodes = [n for n in nodes if isinstance(n, (ast.Assign, ast.FunctionDef))]
    tainted = set(known)
    while True:
        before = len(tainted)
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(
                    values
                ):
                    tainted |= {n for t, v in zip(names, values, strict=True) if is_rank(v, tainted) for n in _name(t)}
                case ast.Assign(targets=targets, value=value) if is_rank(value, tainted):
                    tainted |= {n for target in targets for n in _name(target)}
                case ast.FunctionDef(name=name, body=[*_, ast.Return(value=ast.expr() as value)]) if is_rank(
                    value, tainted
                ):
                    tainted.add(name)
        if len(tainted) == before:
            return tainted


def _name(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield target.attr


def is_rank(value: ast.expr, tainted: set[str]) -> bool:  # noqa: PLR0911 -- one line a form
    """The rank itself, or a comparison with it."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _NAMES.match(name) is not None or name in tainted
        case ast.Call(func=ast.Name(id="int" | "bool" | "str"), args=[inner, *_]):
            return is_rank(inner, tainted)
        case ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv()):
            return is_rank(left, tainted)
        case (
            ast.Call(func=ast.Name(id="getenv"), args=[ast.Constant(value=str(name)), *_])
            | ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(value=str(name)), *_])
            | ast.Subscript(slice=ast.Constant(value=str(name)))
        ):
            return name in _VARIABLES or (isinstance(value, ast.Subscript) and _NAMES.match(name) is not None)
        case ast.Call(func=function):
            return is_rank(function, tainted)
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return asks(value, tainted)
    return False


def asks(test: ast.expr, tainted: set[str]) -> bool:
    """A comparison with the rank, or its truth, somewhere in `and`, `or` and `not`."""
    match test:
        case ast.BoolOp(values=values):
            return any(asks(v, tainted) for v in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return asks(operand, tainted)
        case ast.Compare() if _asks_whether_distributed(test):
            return False
        case ast.Compare(left=left, comparators=comparators):
            return any(is_rank(v, tainted) for v in (left, *comparators))
        case ast.BinOp(left=left, right=right):
            return is_rank(left, tainted) or is_rank(right, tainted)
    return is_rank(test, tainted)


def _asks_whether_distributed(test: ast.Compare) -> bool:
    """`rank != -1`, `local_rank >= 0`, `rank is not None`: every rank of a job answers alike."""
    match test:
        case ast.Compare(comparators=[ast.UnaryOp(op=ast.USub()) | ast.Constant(value=None)]):
            return not isinstance(test.ops[0], (ast.In, ast.NotIn))
        case ast.Compare(ops=[ast.GtE() | ast.Lt()], comparators=[ast.Constant(value=0)]):
            return True
    return False
