"""Which expressions of a script are the rank, or ask for it. The linter sees whole files, of which none may run.

evidence/rank_conditions.py answers the other question, why one line of a stack runs on some ranks only, and knows more
forms of leaving; both go by the same names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

_NAMES = re.compile(
    r"^(?:(?:get_)?(?:(?:global|fs_local|local|node|world|my|dist|ddp|dp|tp|pp|data_parallel|process)_)?rank|is_(?:local_|global_|world_|rank_)?"
    r"(?:main|master|primary|chief|zero|rank0|rank_0|main_process|process_zero|rank_zero|global_zero)(?:_process)?|"
    r"is_rank_?(?:zero|0)|(?:local_)?process_index|master_process|main_process)$",
    re.IGNORECASE,
)
_VARIABLES = {"RANK", "LOCAL_RANK", "GROUP_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}


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
