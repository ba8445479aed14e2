"""End a rank whose torchrun was killed: else init becomes its parent, and it keeps its GPU.

The kernel sends it SIGTERM at that moment, as torchrun would have done, so a rank that saves at SIGTERM still does. The
agent kills a rank that does not end; where the agent has ended as well, `watch` does. The disposition of no signal
changes, and children of the rank do not inherit this.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
