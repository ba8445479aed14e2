"""Does a line run on some ranks only? Read from the script's own source, which is parsed and never run.

A line is conditional where it stands in a branch of an `if` that asks for the rank, or behind an `if` that asks for
the rank and then leaves. What asks for the rank is told by the field's own names and by what was assigned from them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from distdbg.protocol.names import LOCAL_RANK, NODE_RANK, RANK

_WHICH = (
    r"(?:distributed|slurm|mpi|hvd|fs_local|data_parallel|tp|dp|pp|cp|ep|sp|mp|fsdp|ddp|shard|mesh|stage|pipe|process|worker|group|replica|"
    r"current|this)"
)
_MAIN = r"(?:main|master|primary|zero|rank_?zero|rank_?0|chief|root|coordinator|main_process|process_zero|global_zero)"
_NAMES = re.compile(
    rf"^(?:(?:get_|global_|local_|node_|world_|my_|dist_|{_WHICH}_)?rank|is_(?:on_)?(?:local_|global_|world_|rank_)?{_MAIN}"
    rf"(?:_process|_proc|_rank)?|is_(?:local_)?(?:first|last)_(?:stage|rank|process)|get_(?:global_|local_|node_|{_WHICH}_)?rank|"
    r"(?:local_)?process_index|stage_(?:id|idx|index)|(?:local_)?(?:master|main)_process)$",
    re.IGNORECASE,
)
#: Of names of questions about the rank, and of the rank itself.
_ONE = re.compile(rf"(?:^|_)(?:{_MAIN}|first|last)(?:_|$)", re.IGNORECASE)
_RANK = re.compile(r"(?:^|_)(?:rank|index|idx|id)$", re.IGNORECASE)
#: Decorators that let only some ranks into a function: Lightning's, Accelerate's, and those that people write.
_DECORATORS = re.compile(
    r"^(?:(?:rank_?zero|zero_rank|rank_?0|(?:local_)?(?:main|master)(?:_process|_rank)?|process_zero)_only|"
    r"(?:run_|only_)?on_(?:(?:local_)?(?:main|last|master)_(?:process|rank)|process|rank_?(?:zero|0)|main|master))$"
)
_VARIABLES = {*RANK, *LOCAL_RANK, *NODE_RANK}
#: what gives a name to the rank; everything else of a file is passed over
_TELLING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Call, ast.FunctionDef)
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


@dataclass(frozen=True)
class Condition:
    """What asks for the rank at `line` (1-based), as it is written there: `if rank == 0`, `@rank_zero_only`.

    `otherwise` where the line in question runs when it does not hold.
    """

    line: int
    text: str
    otherwise: bool
    #: whether it holds for the one rank that is apart (`rank == 0`) or for all others (`rank != 0`); None for neither
    holds_for_one: bool | None = field(default=None, compare=False)
    #: functions that are called as often where the line in question is not run: these calls part nobody
    shared: frozenset[str] = field(default=frozenset(), compare=False)
    #: the question itself; None for a decorator and a `match`
    test: ast.expr | None = field(default=None, compare=False)


def condition_of(source: str, line: int) -> Condition | None:
    """Why `line` runs on some ranks only; None where nothing says so, or the source is no Python."""
    return _conditions(source).get(line)


@lru_cache(maxsize=64)
def _conditions(source: str) -> dict[int, Condition]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    tainted = RankNames(ast.walk(tree)).found()
    found: dict[int, Condition] = {}
    for node in ast.walk(tree):
        for body in _blocks(node):
            _left_behind(body, tainted, found)
    for node in ast.walk(tree):  # outer ones first: the innermost one has the last word
        for part, condition in _parts(node, tainted):
            _mark(part, condition, found)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            _spare(call, tainted, found)
    return found


def _parts(node: ast.AST, tainted: set[str]) -> Iterator[tuple[Sequence[ast.stmt | ast.expr], Condition]]:
    """What of `node` runs on some ranks only."""
    match node:
        case ast.If(test=test, body=body, orelse=orelse) | ast.While(test=test, body=body, orelse=orelse):
            if asks(test, tainted):
                text, one = (
                    f"{'if' if isinstance(node, ast.If) else 'while'} {ast.unparse(test)}",
                    _for_one(test, tainted),
                )
                yield body, Condition(node.lineno, text, False, one, _shared(body, orelse), test)
                yield orelse, Condition(node.lineno, text, True, one, _shared(orelse, body), test)
        case ast.IfExp(test=test, body=kept, orelse=other) if asks(test, tainted):
            text, one = f"if {ast.unparse(test)}", _for_one(test, tainted)
            if any(map(_calls, ast.walk(kept))) and not _calls(other):
                yield [kept], Condition(test.lineno, text, False, one, test=test)
            if any(map(_calls, ast.walk(other))) and not _calls(kept):
                yield [other], Condition(test.lineno, text, True, one, test=test)
        case ast.BoolOp(op=op, values=[first, *others]) if asks(first, tainted) and any(map(_calls, others)):
            test = first if isinstance(op, ast.And) else ast.UnaryOp(ast.Not(), first)
            text = f"{'if' if isinstance(op, ast.And) else 'if not'} {ast.unparse(first)}"
            yield others, Condition(first.lineno, text, False, _for_one(test, tainted), test=test)
        case ast.Match(subject=subject, cases=cases) if asks(subject, tainted):
            for case in cases:
                text = f"match {ast.unparse(subject)}: case {ast.unparse(case.pattern)}"
                one = True if isinstance(case.pattern, ast.MatchValue) else None
                yield case.body, Condition(case.pattern.lineno, text, False, one)
        case ast.FunctionDef(decorator_list=decorators, body=body):
            for decorator in decorators:
                if keeps_ranks_out(decorator):
                    yield body, Condition(decorator.lineno, f"@{ast.unparse(decorator)}", False, True)


def keeps_ranks_out(decorator: ast.expr) -> bool:
    """`@rank_zero_only`, `@accelerator.on_main_process`, `@on_rank(0)` …: only some ranks come into the function."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return any(_DECORATORS.match(name) for name in _name(called))


def _calls(value: ast.AST) -> bool:
    """Something that could hang: not a question about the rank itself, as in `rank == 0 and is_main()`."""
    return isinstance(value, (ast.Call, ast.Await, ast.NamedExpr)) and not is_rank(value, set())


def _spare(call: ast.Call, tainted: set[str], found: dict[int, Condition]) -> None:
    """`gather(x, make() if rank == 0 else None)`: everybody calls gather, which stands in the same line."""
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(given, (ast.IfExp, ast.BoolOp)):
            for part, condition in _parts(given, tainted):
                _mark(part, replace(condition, shared=frozenset(_name(call.func))), found)


def _shared(body: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> frozenset[str]:
    """Functions that `other` calls as often as `body` does."""
    here, there = _called(body), _called(other)
    return frozenset(name for name in here if here[name] <= there[name])


def _called(body: Iterable[ast.stmt]) -> Counter[str]:
    nodes = (node for statement in body for node in ast.walk(statement))
    return Counter(name for node in nodes if isinstance(node, ast.Call) for name in _name(node.func))


def _left_behind(body: list[ast.stmt], tainted: set[str], found: dict[int, Condition]) -> None:
    """Marks what stands behind `if rank != 0: return` in one block."""
    for number, statement in enumerate(body):
        if isinstance(statement, ast.If) and asks(statement.test, tainted) and isinstance(statement.body[-1], _LEAVES):
            rest, text = body[number + 1 :], f"if {ast.unparse(statement.test)}"
            one = _for_one(statement.test, tainted)
            shared = _shared(rest, statement.body)
            _mark(rest, Condition(statement.lineno, text, True, one, shared, statement.test), found)


def _mark(body: Sequence[ast.stmt | ast.expr], condition: Condition, found: dict[int, Condition]) -> None:
    for statement in body:
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            found[line] = condition


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


class RankNames:
    """Names that stand for the rank or for a question about it: `main = rank == 0`, `def is_first(): return …`.

    Only what is assigned from such an expression itself counts: a seed that was computed from the rank does not.
    `nodes` are those of a whole file, in any order.
    """

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        telling = [n for n in nodes if isinstance(n, _TELLING)]
        self._functions = {node.name: node for node in telling if isinstance(node, ast.FunctionDef)}
        self._nodes = [n for n in telling if _may_tell(n, self._functions)]

    def found(self, known: Iterable[str] = ()) -> set[str]:
        """`known` are names that hold the rank for another reason; they are among the answer."""
        tainted = set(known)
        while True:
            before = len(tainted)
            for node in self._nodes:
                self._look(node, tainted)
            if len(tainted) == before:
                return tainted

    def _look(self, node: ast.AST, tainted: set[str]) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                tainted |= {n for t, v in zip(names, values, strict=True) if is_rank(v, tainted) for n in _name(t)}
            case ast.Assign(targets=targets, value=value) if is_rank(value, tainted):
                tainted |= {n for target in targets for n in _name(target)}
            case ast.AnnAssign(target=target, value=ast.expr() as value) if is_rank(value, tainted):
                tainted |= set(_name(target))
            case ast.NamedExpr(target=target, value=value) if is_rank(value, tainted):
                tainted.add(target.id)
            case ast.Call(func=function, args=values, keywords=keywords):
                tainted |= _parameters(self._functions.get(next(_name(function), "")), values, keywords, tainted)
            case ast.FunctionDef(name=name, body=[*_, ast.Return(value=ast.expr() as value)]) if is_rank(
                value, tainted
            ):
                tainted.add(name)


#: expressions that are the rank, or a question about it, whatever is in them
_MAY_BE_RANK = (
    ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.NamedExpr,
    ast.Tuple,
)  # fmt: skip


def _may_tell(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> bool:
    """Could it ever give a name to the rank? Most values are something else."""
    if isinstance(node, ast.Call):
        return next(_name(node.func), "") in functions
    if isinstance(node, ast.FunctionDef):
        last = node.body[-1]
        return isinstance(last, ast.Return) and isinstance(last.value, _MAY_BE_RANK)
    return isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and isinstance(node.value, _MAY_BE_RANK)


def _parameters(
    function: ast.FunctionDef | None, values: list[ast.expr], keywords: list[ast.keyword], tainted: set[str]
) -> set[str]:
    """Parameters of this file's functions that are given the rank or a question about it: `save(model, rank == 0)`."""
    if function is None:
        return set()
    names = [argument.arg for argument in function.args.args]
    names = names[1:] if names[:1] == ["self"] else names
    given = {n for n, value in zip(names, values, strict=False) if is_rank(value, tainted)}
    return given | {k.arg for k in keywords if k.arg is not None and is_rank(k.value, tainted)}


def _name(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield target.attr


@lru_cache(maxsize=10_000)
def _names_rank(name: str) -> bool:
    return _NAMES.match(name) is not None


def is_rank(value: ast.expr, tainted: set[str]) -> bool:  # noqa: PLR0911 -- one line a form
    """The rank itself, or a comparison with it."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in tainted or _names_rank(name)
        case ast.Call(func=ast.Name(id="int" | "bool" | "str"), args=[inner, *_]) | ast.NamedExpr(value=inner):
            return is_rank(inner, tainted)
        case (
            ast.Call(func=ast.Name(id="getenv"), args=[ast.Constant(value=str(name)), *_])
            | ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(value=str(name)), *_])
            | ast.Subscript(slice=ast.Constant(value=str(name)))
        ):
            return name in _VARIABLES or (isinstance(value, ast.Subscript) and _names_rank(name))
        case ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv()):
            return is_rank(left, tainted)
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


def _for_one(test: ast.expr, tainted: set[str]) -> bool | None:  # noqa: PLR0911 -- one line a form
    """True for `rank == 0` and `is_main`, False for `rank != 0`, `rank > 0` and `if rank`; None for `rank % 2`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _for_one(operand, tainted)
            return None if inner is None else not inner
        case ast.BoolOp(values=values):
            answers = {_for_one(value, tainted) for value in values if asks(value, tainted)}
            return answers.pop() if len(answers) == 1 else None
        case ast.Compare(left=ast.BinOp()):
            return None
        case ast.Compare(ops=[ast.Eq()]):
            return True
        case ast.Compare(ops=[ast.NotEq()]) | ast.Compare(ops=[ast.Gt()], comparators=[ast.Constant(value=0)]):
            return False
        case ast.Compare(ops=[ast.In()], comparators=[ast.Tuple(elts=values) | ast.List(elts=values)]):
            return True if len([v for v in values if not isinstance(v, ast.UnaryOp)]) == 1 else None
        case ast.NamedExpr(value=value):
            return _for_one(value, tainted)
        case ast.Name() | ast.Attribute() | ast.Call():
            name = next(_name(test.func if isinstance(test, ast.Call) else test), "")
            return True if _ONE.search(name) else False if _RANK.search(name) else None
    return None
