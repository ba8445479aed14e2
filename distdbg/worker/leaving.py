"""Call back when the script calls os._exit, which ends a process without a word of Python's.

No audit event announces it. Only its caller's exit is noted: the function of the interpreter is called as it was.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    Callback = Callable[[object, FrameType], None]


class ExitHook:
    """In place of os._exit: calls back with the status and the caller's frame. The callback must not raise."""

    def __init__(self, original: Any, callback: Callback) -> None:
        self.__wrapped__ = original
        self._callback = callback
        for name in ("__name__", "__qualname__", "__module__", "__doc__", "__text_signature__"):
            setattr(self, name, getattr(original, name, None))

    def __call__(self, *given: Any, **named: Any) -> Any:
        self._callback(given[0] if given else named.get("status"), sys._getframe(1))
        return self.__wrapped__(*given, **named)

    def __reduce__(self) -> str:
        """Pickled by its name, as the original is: a child that is given it gets its own os._exit."""
        return "_exit"


def call_back(callback: Callback) -> None:
    """From here on. Where `os` takes it from, pickle looks for it, too."""
    os._exit = sys.modules[os.name]._exit = ExitHook(os._exit, callback)  # type: ignore[attr-defined]
