"""No rank outlives the torchrun that started it: the kernel then kills it, whatever it is doing at the time.

Without this a rank whose torchrun was killed goes on with init as its parent, and holds its GPU. No disposition of a
signal changes, and children of the rank do not inherit it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def die_with_parent() -> None:
    """Raises ImportError, OSError or AttributeError where the system or the build of Python has no way to say so."""
    # ctypes itself takes longer to load, and a script may have meant another module by that name; torch loads both.
    import _ctypes

    parent = os.getppid()
    itself: Any = None  # dlopen(NULL): what is linked into this process
    prctl = _ctypes.dlsym(_ctypes.dlopen(itself, 0), "prctl")
    _ctypes.call_function(prctl, (_PR_SET_PDEATHSIG, _SIGKILL))
    if os.getppid() != parent:  # it went in between, and the kernel has nobody to wait for
        os.kill(os.getpid(), _SIGKILL)
