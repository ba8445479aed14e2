"""Find the holder of an object: the name of a variable or attribute, and the lines that add to it."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from types import FrameType

from distdbg.worker.memory.adding import Scope, lines_of, of_class, of_code, whole
from distdbg.worker.user_code import belongs_to_user
from distdbg.worker.variables import variables

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
        if found := lines_of(re.escape(last) + subscript, scopes):
            return {"name": name, "file": found[0], "lines": found[1]}
    return {"name": name, "file": scopes[0][0], "lines": []}


def _names(target: object) -> Iterator[tuple[str, list[Scope]]]:
    """Its names, with where its lines are to be looked for, the nearest first."""
    for frame in _users_frames():
        file, own = frame.f_code.co_filename, of_code(frame.f_code)
        for name, value in variables(frame).items():
            if value is target:
                yield name, [own, whole(file)]
            elif (attribute := _attribute(value, target)) is not None:
                yield f"{name}.{attribute}", [*of_class(type(value)), own, whole(file)]
    for module in list(sys.modules.values()):
        source = getattr(module, "__file__", None)
        if isinstance(source, str) and belongs_to_user(source):
            for name, value in list(vars(module).items()):
                if value is target:
                    yield name, [whole(source)]
    for owner in gc.get_referrers(target):
        if isinstance(owner, dict):
            yield from _owned(owner, target)
        elif (scopes := of_class(type(owner))) and (attribute := _attribute(owner, target)) is not None:
            # From Python 3.11 on it holds its attributes itself.
            yield f"{type(owner).__name__}.{attribute}", [*scopes, whole(scopes[0][0])]


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
        if getattr(owner, "__dict__", None) is attributes and (scopes := of_class(type(owner))):
            yield f"{type(owner).__name__}.{name}", [*scopes, whole(scopes[0][0])]


def _key_of(owner: object, target: object) -> str:
    """As in the brackets: `'loss'`, `3`; empty where it is no container's."""
    entries = list(dict.items(owner)) if isinstance(owner, dict) else enumerate(owner) if type(owner) is list else ()
    key = next((key for key, value in entries if value is target), None)
    return repr(key) if type(key) in (str, int) and len(repr(key)) <= _LONGEST_KEY else ""
