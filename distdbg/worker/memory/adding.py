"""Find the lines of a script that add to a container, those nearest to its holder first.

Names are not objects: another function's `losses`, or another class's `self.values`, can be another container.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from linecache import getlines
from types import CodeType, FunctionType

from distdbg.worker.user_code import belongs_to_user

#: Some of a file's lines.
Scope = tuple[str, Container[int]]

_MOST_LINES = 3
#: Code that adds to a container, after its name.
_ADDS = r"(?:\.(?:append|appendleft|extend|insert|add|update|setdefault|push)\s*\(|\[[^\]=]*\]\s*=[^=]|\s*\+=|\s*\|=)"


def lines_of(named: str, scopes: list[Scope]) -> tuple[str, list[int]] | None:
    """Of the first scope that has any; none of its lines where they are more than one cares to look at."""
    pattern = re.compile(rf"(?<!\w){named}{_ADDS}")
    for file, lines in scopes:
        source = enumerate(getlines(file), 1)
        found = [n for n, text in source if n in lines and pattern.search(text.partition("#")[0])]
        if found:
            return file, found if len(found) <= _MOST_LINES else []
    return None


def whole(file: str) -> Scope:
    return file, range(1, 1 << 31)


def of_code(code: CodeType) -> Scope:
    """A function with those in it. A file's own lines are without its functions', which have variables of their own."""
    lines = [line for _, _, line in code.co_lines() if line]
    if code.co_name == "<module>":
        return code.co_filename, frozenset(lines)
    nested = [_last(one) for one in code.co_consts if hasattr(one, "co_lines")]
    return code.co_filename, range(code.co_firstlineno, max(lines + nested, default=0) + 1)


def of_class(cls: type) -> list[Scope]:
    """The methods of the script's own classes among it and those that it inherits from."""
    found: list[Scope] = []
    for one in cls.__mro__:
        codes = [code for code in _methods(one) if belongs_to_user(code.co_filename)]
        for file in dict.fromkeys(code.co_filename for code in codes):
            own = [code for code in codes if code.co_filename == file]
            found.append((file, range(min(c.co_firstlineno for c in own), max(map(_last, own)) + 1)))
    return found


def _methods(cls: type) -> Iterator[CodeType]:
    for value in list(vars(cls).values()):
        one = value.__func__ if type(value) in (staticmethod, classmethod) else value
        while type(one) is FunctionType and type(wrapped := vars(one).get("__wrapped__")) is FunctionType:
            one = wrapped
        if type(one) is FunctionType:
            yield one.__code__


def _last(code: CodeType) -> int:
    lines = [line for _, _, line in code.co_lines() if line]
    return max([*lines, *(_last(one) for one in code.co_consts if hasattr(one, "co_lines"))], default=0)
