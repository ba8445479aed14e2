"""Copy the variables of a running function without keeping their values alive.

Up to Python 3.12 `f_locals` of a function's frame fills a dict that lives as long as the frame, and keeps the values
that the variables had: after a look at a training loop the output of a failed attempt would stay. So the dict is
emptied again; the frame fills it anew at the next access.
"""

from __future__ import annotations

import sys
from types import FrameType

_A_FUNCTIONS = 0x1  # CO_OPTIMIZED: a module's or a class body's `f_locals` is where its variables are
#: A script that calls one of these may have kept the dict, or changed it: a look would fill it with the present values.
_HOLD_IT = {"locals", "exec"}


def _references() -> int:
    """The reference count of a dict held by its frame and one variable; 0 without one, as from Python 3.13 on."""
    kept = sys._getframe().f_locals
    return sys.getrefcount(kept) if type(kept) is dict else 0


_OURS = _references()


def variables(frame: FrameType) -> dict[str, object]:
    """A copy, to be dropped soon. Empty where the look would have an effect."""
    code = frame.f_code
    if not code.co_flags & _A_FUNCTIONS:
        return dict(frame.f_locals) if type(frame.f_locals) is dict else {}
    if not _OURS:
        return dict(frame.f_locals)
    if not _HOLD_IT.isdisjoint(code.co_names) or _traced(frame):
        return {}
    kept = frame.f_locals
    found = dict(kept)
    if sys.getrefcount(kept) == _OURS:  # else other code holds it, and relies on its content
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            kept.pop(name, None)
    return found


def _traced(frame: FrameType) -> bool:
    """By a Python function: when that returns, the interpreter restores the variables from this dict."""
    threading = sys.modules.get("threading")
    hooks = (getattr(threading, name, None) for name in ("_trace_hook", "_profile_hook"))
    if sys.gettrace() is not None or sys.getprofile() is not None or any(hook is not None for hook in hooks):
        return True
    one: FrameType | None = frame
    while one is not None and one.f_trace is None:
        one = one.f_back
    return one is not None
