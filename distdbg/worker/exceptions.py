"""Describe an exception for the agent, and the exceptions that other threads are handling now."""

from __future__ import annotations

import sys

from distdbg.worker.user_code import belongs_to_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType


def describe(error: BaseException, traceback: TracebackType | None, thread: str = "MainThread") -> dict[str, object]:
    """type, message, traceback (as Python prints it), thread, where [file, line, function]."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return {
        "type": name,
        "message": _text_of(error),
        "traceback": _format(error, traceback),
        "thread": thread,
        "where": _where(traceback),
    }


def being_handled(own_thread: int) -> list[dict[str, object]]:
    """The exceptions that other threads are handling: in an `except` or a `finally` after one."""
    current: dict[int, BaseException | tuple[object, ...] | None]
    current = getattr(sys, "_current_exceptions", dict)()
    threading = sys.modules.get("threading")
    found = []
    for ident, error in current.items():
        value = error[1] if isinstance(error, tuple) else error  # Python 3.10 and 3.11 give a triple
        if ident == own_thread or not isinstance(value, BaseException):
            continue
        thread = getattr(threading, "_active", {}).get(ident)
        found.append(describe(value, value.__traceback__, getattr(thread, "name", "MainThread")))
    return found


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "its text is not available"


def _format(error: BaseException, traceback: TracebackType | None) -> str:
    try:
        from traceback import format_exception

        return "".join(format_exception(type(error), error, traceback))
    except Exception:
        return ""


def _where(traceback: TracebackType | None) -> list[object] | None:
    """The innermost frame in the user's own code, else the innermost."""
    chosen: list[object] | None = None
    is_users = False
    while traceback is not None:
        frame: FrameType = traceback.tb_frame
        users = belongs_to_user(frame.f_code.co_filename)
        if users or not is_users:
            chosen = [frame.f_code.co_filename, traceback.tb_lineno, frame.f_code.co_name]
        is_users = is_users or users
        traceback = traceback.tb_next
    return chosen
