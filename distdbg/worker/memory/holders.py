"""Find the holder of an object: the name of a variable or attribute, and the lines that add to it, nearest first.

Names are not objects: another function's `losses`, or another class's `self.values`, can be another container.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Container, Iterator
from linecache import getlines
from types import CodeType, FrameType, FunctionType

from distdbg.worker.user_code import belongs_to_user, variables

#: Some of a file's lines.
Scope = tuple[str, Container[int]]

_MOST_LINES = 3
#: Code that adds to a container, after its name.
_ADDS = r"(?:\.(?:append|appendleft|extend|insert|add|update|setdefault|push)\s*\(|\[[^\]=]*\]\s*=[^=]|\s*\+=|\s*\|=)"


def _adding_lines(named: str, scopes: list[Scope]) -> tuple[str, list[int]] | None:
    """Of the first scope that has any; none of its lines where they are more than one cares to look at."""
    pattern = re.compile(rf"(?<!\w){named}{_ADDS}")
    for file, lines in scopes:
        source = enumerate(getlines(file), 1)
        found = [n for n, text in source if n in lines and pattern.search(text.partition("#")[0])]
        if found:
            return file, found if len(found) <= _MOST_LINES else []
    return None


def _file_scope(file: str) -> Scope:
    return file, range(1, 1 << 31)


def _code_scope(code: CodeType) -> Scope:
    """A function with those in it. A file's own lines are without its functions', which have variables of their own."""
    if code.co_name == "<module>":
        return code.co_filename, frozenset(line for _, _, line in code.co_lines() if line)
    return code.co_filename, range(code.co_firstlineno, _last(code) + 1)


def _class_scopes(cls: type) -> list[Scope]:
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


#: Of the containers that hold it so many are looked for in their turn; and so much of a key is shown.
_MOST_OWNERS, _LONGEST_KEY = 8, 40


def holder_of(target: object) -> dict[str, object]:
    """{"name": "losses", "file": …, "lines": [33]}; empty where no holder is found.

    Looked through are the frames of all threads, the script's modules, and one step of referrers; where that is a
    container of the script's, they are for it. About 20 ms.
    """
    for name, scopes in _names(target):
        return _described(name, name.rpartition(".")[2], "", scopes)
    for owner in gc.get_referrers(target)[:_MOST_OWNERS]:
        key = _key_of(owner, target)
        for name, scopes in _names(owner) if key else ():
            return _described(f"{name}[{key}]", name.rpartition(".")[2], key, scopes)
    return {}


def _described(name: str, last: str, key: str, scopes: list[Scope]) -> dict[str, object]:
    """Lines that name its very key, or else any."""
    exact = rf"\[\s*{re.escape(key)}\s*\]".replace("'", "[\"']")
    for subscript in (exact, r"\[[^\]]*\]") if key else ("",):
        if found := _adding_lines(re.escape(last) + subscript, scopes):
            return {"name": name, "file": found[0], "lines": found[1]}
    return {"name": name, "file": scopes[0][0], "lines": []}


def _names(target: object) -> Iterator[tuple[str, list[Scope]]]:
    """Its names, with where its lines are to be looked for, the nearest first."""
    for frame in _users_frames():
        file, own = frame.f_code.co_filename, _code_scope(frame.f_code)
        for name, value in variables(frame).items():
            if value is target:
                yield name, [own, _file_scope(file)]
            elif (attribute := _attribute(value, target)) is not None:
                yield f"{name}.{attribute}", [*_class_scopes(type(value)), own, _file_scope(file)]
    for module in list(sys.modules.values()):
        source = getattr(module, "__file__", None)
        if isinstance(source, str) and belongs_to_user(source):
            for name, value in list(vars(module).items()):
                if value is target:
                    yield name, [_file_scope(source)]
    for owner in gc.get_referrers(target):
        if isinstance(owner, dict):
            yield from _owned(owner, target)
        elif (scopes := _class_scopes(type(owner))) and (attribute := _attribute(owner, target)) is not None:
            # From Python 3.11 on it holds its attributes itself.
            yield f"{type(owner).__name__}.{attribute}", [*scopes, _file_scope(scopes[0][0])]


def _users_frames() -> Iterator[FrameType]:
    for top in list(sys._current_frames().values()):
        frame: FrameType | None = top
        while frame is not None:
            if belongs_to_user(frame.f_code.co_filename):
                yield frame
            frame = frame.f_back


def _attribute(value: object, target: object) -> str | None:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return next((n for n, v in list(attributes.items()) if v is target), None) if type(attributes) is dict else None


def _owned(attributes: dict[object, object], target: object) -> Iterator[tuple[str, list[Scope]]]:
    """An instance's `__dict__` that holds it: the class's name and lines."""
    name = next((n for n, v in list(dict.items(attributes)) if v is target), None)
    for owner in gc.get_referrers(attributes) if isinstance(name, str) else ():
        if getattr(owner, "__dict__", None) is attributes and (scopes := _class_scopes(type(owner))):
            yield f"{type(owner).__name__}.{name}", [*scopes, _file_scope(scopes[0][0])]


def _key_of(owner: object, target: object) -> str:
    """As in the brackets: `'loss'`, `3`; empty where it is no container's."""
    entries = list(dict.items(owner)) if isinstance(owner, dict) else enumerate(owner) if type(owner) is list else ()
    key = next((key for key, value in entries if value is target), None)
    return repr(key) if type(key) in (str, int) and len(repr(key)) <= _LONGEST_KEY else ""
