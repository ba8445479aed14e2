"""Define our functions that torch.compile can meet in traced code. It must be able to trace each of them.

All other code of the worker side is hidden from it (hook_points.hide_from_compiler).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def unless_traced(deliver: Callable[[Any], None]) -> Callable[..., None]:
    """Delivers its first argument; in a traced region a constant `if`, which leaves nothing behind."""
    from torch.compiler import is_dynamo_compiling

    def tell(subject: object, *_others: object) -> None:
        if not is_dynamo_compiling():
            deliver(subject)

    return tell


def method(original: Callable[..., Any], told: Callable[[Any], None]) -> property:
    """For a class in place of a method: tells of the instance whenever the method is taken from one.

    It hands out no bound method: torch.compile would get that by taking it from us once more, and so without end.
    """
    from functools import partial

    def take(instance: object) -> object:
        told(instance)
        return partial(original, instance)

    return property(take)


def asked(original: Callable[..., Any], by: tuple[str, ...], told: Callable[[Any], None]) -> Callable[..., Any]:
    """For a module in place of a helper that raises nothing: tells which function asks it, where it is one of `by`."""
    from sys import _getframe

    from torch.compiler import is_dynamo_compiling

    def ask(*args: object, **kwargs: object) -> object:
        if not is_dynamo_compiling():
            frame = _getframe(1)
            if frame.f_code.co_name in by:
                told(frame)
        return original(*args, **kwargs)

    return ask
