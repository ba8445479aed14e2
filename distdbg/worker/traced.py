"""The functions of ours that torch.compile may meet in what it traces. It must see through each of them.

They stand apart because everything else of the worker side is hidden from it (`hide_the_rest`): it would compile our
code as if it were the script's, wherever that runs below a function that is compiled in parts.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def teller(emit: Callable[[str, object], None], event: str) -> Callable[..., None]:
    """Emits with its first argument; in a traced region a constant `if`, which leaves nothing behind."""
    from torch.compiler import is_compiling

    def tell(subject: object, *_others: object) -> None:
        if not is_compiling():
            emit(event, subject)

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


def hide_the_rest(trace_rules: Any) -> None:  # noqa: ANN401
    """Once torch.compile is loaded. Raises AttributeError where it has no such list."""
    for name in list(sys.modules):
        if name.startswith("distdbg.worker.") and name != __name__:
            trace_rules.add(name)
