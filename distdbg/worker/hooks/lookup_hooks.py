"""Call back when Python looks up a function, attribute or method, without a frame on the script's stack.

A wrapper function would appear in every traceback of what it wraps, and standard error would differ from plain
Python's: an out-of-memory in backward, a full disk in save. So nothing is wrapped: a descriptor's `__get__` runs, calls
back, returns the original, and has returned before that is called.

A hook has a list of one function, its callback, which others may replace (Bus.channel). A callback must not raise. It
is called for every lookup, also one that calls nothing, so only private names are hooked, which no other module uses.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Callback = list[Callable[[Any], None]]


class CallHook:
    """In a module in place of a function: calls back with the caller's frame.

    The interpreter looks `__call__` up in the class, where a property calls back and returns the original.
    """

    def __init__(self, original: Any, callback: Callback) -> None:
        self.__wrapped__ = original
        self._callback = callback
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(self, name, getattr(original, name, None))

    @property
    def __call__(self) -> Any:
        self._callback[0](sys._getframe(1))
        return self.__wrapped__


class BuiltinHook(CallHook):
    """In a module in place of a builtin that it does not define: a later replacement of the builtin is called."""

    def __init__(self, name: str, callback: Callback) -> None:
        super().__init__(getattr(builtins, name), callback)
        self._name = name

    @property
    def __call__(self) -> Any:
        self._callback[0](sys._getframe(1))
        return getattr(builtins, self._name)


class ReadHook:
    """In a class in place of an instance's plain attribute: calls back when it is read."""

    def __init__(self, name: str, callback: Callback) -> None:
        self._name = name
        self._callback = callback

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or self._name not in instance.__dict__:
            raise AttributeError(f"{(owner or type(instance)).__name__!r} object has no attribute {self._name!r}")
        self._callback[0](instance)
        return instance.__dict__[self._name]

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = value


class WriteHook:
    """In a class in place of an instance's plain attribute: calls back when it is written. Without a `__get__` reading
    it costs nothing."""

    def __init__(self, name: str, callback: Callback) -> None:
        self._name = name
        self._callback = callback

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = value
        self._callback[0](instance)


class MethodHook:
    """In a class in place of a method that others may look up in the class itself: calls back with each instance."""

    def __init__(self, original: Any, callback: Callback) -> None:
        self.__wrapped__ = original
        self._callback = callback

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self.__wrapped__
        self._callback[0](instance)
        return self.__wrapped__.__get__(instance, owner)


def next_hook(original: Any, is_first: Callable[[Any], bool], came: Callback, began: Callback) -> Any:
    """For a class in place of `__next__`: `is_first` is called before an item, `came` after it. Where `is_first` is
    true, `began` gets the instance with that item.

    The original runs below two `map`s, which are written in C and leave no frame. They let all exceptions pass, and
    StopIteration, too.
    """

    def pass_on(instance: object, item: object) -> object:
        came[0](instance)
        return item

    def pass_first(instance: object, item: object) -> object:
        came[0](instance)
        began[0]((instance, item))
        return item

    def take(_self: object, instance: object, _owner: type | None = None) -> Any:
        if instance is None:
            return original
        return map(pass_first if is_first(instance) else pass_on, (instance,), map(original, (instance,))).__next__

    return type("next_hook", (), {"__get__": take})()
