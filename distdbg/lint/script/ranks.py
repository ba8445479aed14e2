"""Find lines that run on some ranks only: in or behind an `if` about the rank, or in a function only called there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from distdbg.diagnosis.waits.rank_conditions import RankNames, asks, is_rank, keeps_ranks_out
from distdbg.lint.script.rank_taint import RankTaint
from distdbg.lint.script.script import FUNCTIONS, Function, Script, last_word, names_in
from distdbg.lint.script.values import ValueFlow

_TELLING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Call, ast.FunctionDef)
_KNOWN = re.compile(
    r"(?:^|_)rank$|^RANK$|^is_(?:\w+_)?(?:main|master|primary|chief|rank_?zero|rank_?0)(?:_|$)|(?:main|master)_process$"
)
#: a question whether there are several ranks at all
_SEVERAL = re.compile(r"distributed|initialized|available|world|ddp|multi|num_|gpu", re.IGNORECASE)
#: names that tell whether there are several ranks
_IS_DISTRIBUTED = re.compile(
    r"^(?:is_initialized|(?:use_|is_|in_)?(?:ddp|dist|distributed)|is_dist_avail_and_initialized|is_dist_initialized)$"
)
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_DEEPEST = 12


@dataclass(frozen=True)
class RankGuard:
    """`node` asks for the rank; `otherwise` where the guarded line runs when its test does not hold."""

    node: ast.If | ast.IfExp | Function
    otherwise: bool

    @property
    def test(self) -> ast.expr | None:
        return self.node.test if isinstance(self.node, (ast.If, ast.IfExp)) else None


class Ranks:
    def __init__(self, script: Script, values: ValueFlow) -> None:
        self.script = script
        self.values = values
        self._known_guards: dict[ast.AST, list[RankGuard]] = {}
        self._leavers: dict[ast.AST, list[tuple[int, int, RankGuard]]] = {}
        self._asked: dict[ast.expr, bool] = {}
        self._taint: RankTaint | None = None
        self._find_taint()

    @cached_property
    def names(self) -> set[str]:
        """Names of this file that hold the rank or a question about it, parameters that are given it included."""
        by_form = RankNames(node for kind in _TELLING for node in self.script.all(kind))
        # What `mp.spawn(train)` gives `train` first is the number of the process.
        spawns = [c for c in self.script.calls("spawn") if "multiprocessing" in self.script.call_names[c]]
        firsts = [a.arg for call in spawns for function in self.values.callees(call) for a in function.args.args[:1]]
        found = by_form.found({name for name in firsts if len(name) > 2})
        for _ in range(2):
            given = self._given(found) - found
            if not given:
                break
            found = by_form.found(found | given)
        return found

    def _given(self, known: set[str]) -> set[str]:
        return {name for name, value in self._arguments if is_rank(value, known)}

    @cached_property
    def _arguments(self) -> list[tuple[str, ast.expr]]:
        """Parameters of this file's functions, and the variables that they are given somewhere."""
        found: list[tuple[str, ast.expr]] = []
        for function, calls in self.values.callers.items():
            names = [a.arg for a in function.args.args if a.arg not in ("self", "cls")]
            for call in calls:
                pairs = [*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
                found += [(n, v) for n, v in pairs if len(n) > 2 and isinstance(v, (ast.Name, ast.Attribute))]
        return found

    def asks(self, test: ast.expr) -> bool:
        """Does the test ask for the rank, or for a value that differs from rank to rank?"""
        if test not in self._asked:
            self._asked[test] = asks(test, self.names) or self.depends(test)
        return self._asked[test]

    def depends(self, test: ast.expr) -> bool:
        """Does the test ask for a value that differs because a rank decided where it was assigned?"""
        return self._taint is not None and self._taint.depends(test)

    def _find_taint(self) -> None:
        """Which assignments run on some ranks only is known from the tests of the rank itself; then ask all again."""
        if any(map(self.asks, (node.test for node in self.script.all(ast.If)))):
            self._taint = RankTaint(self.script, self.values, lambda node: bool(self.guards(node)))
            self._asked.clear()
            self._known_guards.clear()
            self._leavers.clear()

    @cached_property
    def known(self) -> bool:
        """Does the file know of ranks at all?"""
        return any(_KNOWN.search(name) for name in self._mentioned)

    @cached_property
    def _mentioned(self) -> set[str]:
        """Names and short constants of the file itself, not of what it calls from others."""
        script = self.script
        words = {n.id for n in script.within(script.tree, ast.Name)}
        words |= {a.attr for a in script.within(script.tree, ast.Attribute)}
        words |= {c.value for c in script.within(script.tree, ast.Constant) if isinstance(c.value, str)}
        return {word for word in words if len(word) < 20}

    def mentions(self, expression: ast.AST) -> bool:
        """Does an expression, or a variable in it, hold the rank? `f"{path}.{rank}"` does."""
        about = {n for n in names_in(expression) if re.search(r"rank", n, re.IGNORECASE)}
        return bool(about or names_in(expression) & self.names)

    def guards(self, node: ast.AST) -> list[RankGuard]:
        """Guards of the same function around or before the node, the innermost first."""
        found: list[RankGuard] = []
        while not isinstance(node, (ast.stmt, ast.Module)):
            outer = self.script.parents[node]
            if isinstance(outer, ast.IfExp) and node is not outer.test and self.asks(outer.test):
                found.append(RankGuard(outer, node is not outer.body))
            if isinstance(outer, ast.If):  # a part of its test
                return found + self._of_statement(outer)
            node = outer
        return found + self._of_statement(node)

    def _of_statement(self, statement: ast.AST) -> list[RankGuard]:
        if statement in self._known_guards:
            return self._known_guards[statement]
        found: list[RankGuard] = []
        outer = self.script.parents.get(statement)
        if outer is not None and not isinstance(statement, FUNCTIONS):
            if isinstance(outer, ast.If) and self.asks(outer.test):
                found.append(RankGuard(outer, statement not in outer.body))
            found += self._left_behind(outer, statement)
            if isinstance(outer, FUNCTIONS):
                found += [RankGuard(outer, False)] if any(map(keeps_ranks_out, outer.decorator_list)) else []
            else:
                found += self._of_statement(outer)
        self.script.check_limit(len(found))
        self._known_guards[statement] = found
        return found

    def _left_behind(self, outer: ast.AST, below: ast.AST) -> Iterator[RankGuard]:
        """`if rank != 0: return` above the node in one of the blocks that hold it."""
        if outer not in self._leavers:
            self._leavers[outer] = list(self._leaving(outer))
        here = self.script.begin[below]
        for first, last, guard in self._leavers[outer]:
            if first < here <= last:
                yield guard

    def _leaving(self, outer: ast.AST) -> Iterator[tuple[int, int, RankGuard]]:
        """Every `if` about the rank in a block of `outer` that leaves it: where it and the last statement begin."""
        for name in ("body", "orelse", "finalbody"):
            block = getattr(outer, name, None)
            if not isinstance(block, list):
                continue
            for statement in block:
                for one in _first_to_run(statement):
                    match one:
                        case ast.If(test=test, body=body, orelse=[]) if self.leaves(body) and self.asks(test):
                            if not self._is_an_error(one):
                                begin = self.script.begin
                                yield begin[statement], begin[block[-1]], RankGuard(one, otherwise=True)

    def _is_an_error(self, one: ast.If) -> bool:
        """`if path is None and rank == 0: sys.exit(1)`: where there is a path, all ranks go on."""
        parts = _parts(one.test)
        ends = not isinstance(one.body[-1], (ast.Return, ast.Continue, ast.Break))
        return ends and any(not self.asks(part) and not _SEVERAL.search(ast.unparse(part)) for part in parts)

    @staticmethod
    def leaves(body: list[ast.stmt]) -> bool:
        last = body[-1]
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
            return ast.unparse(last.value.func) in ("exit", "sys.exit", "os._exit")
        return isinstance(last, _LEAVES)

    def guarded(self, node: ast.AST) -> bool:
        """Does the node run on some ranks only, by its own place or by all the places its function is called from?"""
        return self._guarded(node, frozenset())

    def _guarded(self, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
        if self.guards(node) or self._alone(node):
            return True
        function = self.script.function_of(node)
        if function is None or function in seen or len(seen) > _DEEPEST:
            return False
        callers = self.values.callers.get(function, [])
        return bool(callers) and all(
            self._of_one_rank(call) or self._guarded(call, seen | {function}) for call in callers
        )

    def _alone(self, node: ast.AST) -> bool:
        """In the `else` of `if dist.is_initialized():`, of `if args.distributed:`: there is one process."""
        below = node
        for outer in self.script.above(node):
            if isinstance(outer, FUNCTIONS):
                return False
            if isinstance(outer, ast.If) and below is not outer.test:
                several = below in outer.body
                test = outer.test
                if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                    test, several = test.operand, not several
                if not several and _IS_DISTRIBUTED.match(last_word(test.func if isinstance(test, ast.Call) else test)):
                    return True
            below = outer
        return False

    def _of_one_rank(self, call: ast.Call) -> bool:
        """A method of what only some ranks have: `if rank == 0: saver = Saver()` … `if saver: saver.save()`."""
        sites = self.values.sites(call.func.value, "instance") if isinstance(call.func, ast.Attribute) else set()
        return bool(sites) and all(self.guards(site) for site in sites)


def _first_to_run(statement: ast.stmt) -> list[ast.stmt]:
    """The statement; of `try` and `with` what they hold, less what their handlers catch (`raise`, `sys.exit()`)."""
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return statement.body
    if isinstance(statement, ast.Try):
        returns = (ast.Return, ast.Continue, ast.Break)
        return [one for one in statement.body if isinstance(one, ast.If) and isinstance(one.body[-1], returns)]
    return [statement]


def _parts(test: ast.expr) -> list[ast.expr]:
    """What must hold, each by itself: `a` and `b` of `a and b`."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
