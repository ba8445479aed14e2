"""Which rank sets the key of a store that another rank waits for: by the lines that set keys in the ranks' scripts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.diagnosis.waits.rank_conditions import condition_of
from distdbg.evidence.dump import Dump
from distdbg.evidence.stacks.store_calls import HOLE, StoreCall, setting_calls

_MOST_TOLD = 2
_MOST_DIGITS = 7
_NAMES = frozenset({"rank", "global_rank", "world_rank", "my_rank"})


@dataclass(frozen=True)
class _Site:
    """A line that sets a key of this form. `rank` is the only rank that does, None where that is not known."""

    place: str
    text: str
    rank: int | None = None


def with_setters(standings: Mapping[int, Standing], dump: Dump) -> dict[int, Standing]:
    """The standings of ranks that wait for a key which one other rank sets: they wait for that rank."""
    found = {}
    for rank, standing in standings.items():
        sites = _sites(standing.key, dump) if standing.key else []
        setters = {site.rank for site in sites}
        if len(sites) == 1 and (setter := setters.pop()) is not None and setter != rank and setter in standings:
            what = f"{standing.function} (rank {setter} sets it at {sites[0].place})"
            found[rank] = replace(standing, doing=Doing.KEY, peer=setter, function=what, phrase=f"waits in {what}")
    return found


def said_of_setters(standing: Standing, dump: Dump) -> str:
    """Of a rank whose key is not known to be another rank's: which lines set such a key, or which set other keys."""
    if not standing.key:
        return ""
    if sites := _sites(standing.key, dump):
        return f"Such a key is set at {', '.join(site.place for site in sites[:_MOST_TOLD])}."
    others = [(file, call) for file, source in dump.sources.items() for call in setting_calls(source)]
    if not others or len(others) > _MOST_TOLD or not all(_differs(call, standing.key) for _, call in others):
        return ""
    told = ", ".join(f"{call.text} ({_place(file, call)})" for file, call in others)
    return f"The scripts that the ranks are in set no such key, only {told}."


def _differs(call: StoreCall, key: str) -> bool:
    """Whatever is not known of a key, it begins in another way than all that this call sets."""
    begins = key.partition(HOLE)[0]
    forms = [form.begins if (form := _form(part)) is not None else "" for part in call.parts]
    return all(not begins.startswith(one) and not one.startswith(begins) for one in forms)


def _sites(key: str, dump: Dump) -> list[_Site]:
    return [site for file, source in dump.sources.items() for site in _of_source(file, source, key)]


def _of_source(file: str, source: str, key: str) -> Iterator[_Site]:
    for call in setting_calls(source):
        for part in call.parts:
            form = _form(part)
            match = re.fullmatch(form.pattern, key) if form is not None else None
            if form is not None and match is not None:
                yield _Site(_place(file, call), call.text, _rank_of(source, call, form, match))


@dataclass(frozen=True)
class _Form:
    """A key's text with a group for each part that is computed, and the expressions of these."""

    pattern: str
    parts: tuple[ast.expr, ...]

    @property
    def begins(self) -> str:
        return re.sub(r"\\(.)", r"\1", self.pattern.partition("(.+?)")[0])


def _form(part: ast.expr) -> _Form | None:
    """None for an expression that says nothing of the key."""
    match part:
        case ast.Constant(value=str(text)):
            return _Form(re.escape(text), ())
        case ast.JoinedStr(values=values):
            computed = tuple(value.value for value in values if isinstance(value, ast.FormattedValue))
            pieces = (re.escape(str(v.value)) if isinstance(v, ast.Constant) else "(.+?)" for v in values)
            return _Form("".join(pieces), computed) if any(isinstance(v, ast.Constant) for v in values) else None
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            given = tuple(right.elts) if isinstance(right, ast.Tuple) else (right,)
            around = re.split(r"%0?\d?[sd]", text)
            pattern = "(.+?)".join(map(re.escape, around))
            return _Form(pattern, given) if len(around) == len(given) + 1 and any(around) else None
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = _form(left) or _Form("(.+?)", (left,)), _form(right) or _Form("(.+?)", (right,))
            known = _form(left) or _form(right)
            return _Form(one.pattern + other.pattern, one.parts + other.parts) if known else None
    return None


def _rank_of(source: str, call: StoreCall, form: _Form, match: re.Match[str]) -> int | None:
    """By a part of the key that is the rank, else by the condition that the line stands in."""
    for part, text in zip(form.parts, match.groups(), strict=True):
        if _is_rank(part, source):
            return int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else None
    condition = condition_of(source, call.line)
    if condition is None or condition.test is None:
        return None
    return _only_rank(condition.test, source, otherwise=condition.otherwise)


def _is_rank(value: ast.expr, source: str) -> bool:
    """The global rank. A variable that the script reads from LOCAL_RANK is not."""
    match value:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[], keywords=[]):
            return name == "get_rank"
        case ast.Name(id=name) | ast.Attribute(attr=name):
            local = re.search(rf"\b{name}\b[^\n=]*=[^\n]*local_?rank", source, re.IGNORECASE)
            return name in _NAMES and local is None
    return False


def _only_rank(test: ast.expr, source: str, *, otherwise: bool) -> int | None:
    """The rank for which `if rank == 0` holds, or `if rank != 0` does not."""
    tests = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and not otherwise else [test]
    for one in tests:
        match one:
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=int(number))]) if _is_rank(
                left, source
            ):
                above_0 = otherwise and number == 0 and isinstance(op, ast.Gt)
                if above_0 or isinstance(op, ast.NotEq if otherwise else ast.Eq):
                    return number
    return None


def _place(file: str, call: StoreCall) -> str:
    return f"{file.rpartition('/')[2]}:{call.line}"
