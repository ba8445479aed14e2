"""End a rank whose torchrun was killed, and call back when the script calls os._exit.

Without the first, init becomes the parent of the rank, and the rank keeps its GPU. The kernel sends the rank SIGTERM at
that moment, as torchrun would have done, so a rank that saves at SIGTERM still does. The agent kills a rank that does
not end; if the agent has ended as well, `watch` does. The disposition of no signal changes, and children of the rank do
not inherit this.

os._exit ends a process without a message or an audit event. The function of the interpreter is called as before.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    Callback = Callable[[object, FrameType], None]

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61  # "Yama"
_SIGTERM, _SIGKILL = 15, 9
_LOOK_S = 1.0


def _prctl(option: int, value: int) -> None:
    # ctypes itself takes longer to load, and a script may have meant another module by that name; torch loads both.
    import _ctypes

    itself: Any = None  # dlopen(NULL): what is linked into this process
    prctl = _ctypes.dlsym(_ctypes.dlopen(itself, 0), "prctl")
    _ctypes.call_function(prctl, (option, value))


def end_with_parent() -> int:
    """Returns the parent's pid. Raises ImportError, OSError or AttributeError where the kernel has no such call."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, _SIGTERM)
    if os.getppid() != parent:  # it ended in between, and the kernel has no parent to watch
        os.kill(os.getpid(), _SIGTERM)
    return parent


def allow_tracing_by(agent: int) -> None:
    """Where Yama lets only ancestors look into a process (ptrace_scope 1), `agent` and its children may, too.

    Elsewhere the kernel knows no such option, and nothing happens. Raises as end_with_parent does.
    """
    _prctl(_PR_SET_PTRACER, agent)


def watch(parent: int, grace_s: float) -> None:
    """For the listening thread once the agent has ended: if torchrun ends as well, the rank has `grace_s` to end."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    time.sleep(grace_s)
    os.kill(os.getpid(), _SIGKILL)


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


def call_back_at_exit(callback: Callback) -> None:
    """Replace os._exit. Pickle looks for it in the module that `os` takes it from, so it is replaced there, too."""
    os._exit = sys.modules[os.name]._exit = ExitHook(os._exit, callback)  # type: ignore[attr-defined]
