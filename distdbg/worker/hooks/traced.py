"""Define our functions that torch.compile can meet in traced code. It must be able to trace each of them.

All other code of the worker side is hidden from it (hook_points.hide_from_compiler).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Callback = list[Callable[[Any], None]]


def unless_traced(callback: Callback) -> Callable[..., None]:
    """Calls back with its first argument; in a traced region a constant `if`, which leaves nothing behind."""
    from torch.compiler import is_dynamo_compiling

    def deliver_first(subject: object, *_others: object) -> None:
        if not is_dynamo_compiling():
            callback[0](subject)

    return deliver_first


def method(original: Callable[..., Any], callback: Callback) -> property:
    """For a class in place of a method: calls back with the instance whenever the method is looked up in one.

    In a traced region it does not call back, and returns no bound method: torch.compile would look that up again, and
    so without end. Elsewhere it does, because one is made in half the time.
    """
    from functools import partial
    from types import MethodType

    from torch.compiler import is_dynamo_compiling

    def take(instance: object) -> object:
        if is_dynamo_compiling():
            return partial(original, instance)
        callback[0](instance)
        return MethodType(original, instance)

    return property(take)


def called_by(original: Callable[..., Any], by: tuple[str, ...], callback: Callback) -> Callable[..., Any]:
    """For a module in place of a helper that raises nothing: calls back with its caller's frame, if it is in `by`."""
    from sys import _getframe

    from torch.compiler import is_dynamo_compiling

    def replacement(*args: object, **kwargs: object) -> object:
        if not is_dynamo_compiling():
            frame = _getframe(1)
            if frame.f_code.co_name in by:
                callback[0](frame)
        return original(*args, **kwargs)

    return replacement
