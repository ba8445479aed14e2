"""Describe for the agent an exception, the exceptions that other threads handle now, and the stacks of all threads."""

from __future__ import annotations

import os
import sys

from distdbg.whole_file import write_whole
from distdbg.worker.user_code import belongs_to_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType

#: A chain of exceptions is followed so far; a script can make it a circle.
_MOST_LINKS = 64
_MOST_FRAMES = 300


def describe(error: BaseException, traceback: TracebackType | None, thread: str = "MainThread") -> dict[str, object]:
    """type, message, traceback (as Python prints it), thread, where [file, line, function]."""
    try:
        text = _format(error, traceback)
    except Exception:
        text = ""
    return {**_fields(error, traceback), "traceback": text, "thread": thread}


def _fields(error: BaseException, traceback: TracebackType | None) -> dict[str, object]:
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return {"type": f"{module}{kind.__qualname__}", "message": _text_of(error), "thread": "MainThread",
            "where": where_of(traceback)}  # fmt: skip


def described(error: BaseException, traceback: TracebackType | None) -> list[dict[str, object]]:
    """The exception that ends the script; before it one that arrived while the text of its traceback was made.

    torch's handler of SIGCHLD raises in whatever code runs, when a loader's worker has died: the error that the script
    got is then a consequence of that.
    """
    try:
        text = _format(error, traceback)
    except Exception as arrived:
        first = describe(error, traceback)
        reason = {**first, "type": type(arrived).__qualname__, "message": _text_of(arrived), "traceback": ""}
        return [reason, first] if isinstance(arrived, RuntimeError) else [first]
    return [{**_fields(error, traceback), "traceback": text}]


def turned_into_exit(error: BaseException | None) -> BaseException | None:
    """The exception in whose handler a script called sys.exit, as Hydra does; None where there was none."""
    last = error
    for _ in range(_MOST_LINKS):
        if not isinstance(error, SystemExit):
            break
        last, error = error, error.__cause__ or error.__context__
    if error is None and last is not None:
        return _kept_by(last.__traceback__)
    return None if isinstance(error, SystemExit) else error


def _kept_by(traceback: TracebackType | None) -> BaseException | None:
    """The exception that a library's function has in a variable, or whose method it has, as click's has `show`: it
    handled the exception first, and called sys.exit then. A script's own variable may be old."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or belongs_to_user(traceback.tb_frame.f_code.co_filename):
        return None
    values = (getattr(value, "__self__", value) for value in traceback.tb_frame.f_locals.values())
    return next((v for v in values if isinstance(v, BaseException) and not isinstance(v, SystemExit)), None)


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
    from traceback import format_exception

    return "".join(format_exception(type(error), error, traceback))


def where_of(traceback: TracebackType | None) -> list[object] | None:
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


def stacks_of_all_threads() -> list[dict[str, object]]:
    """One object a thread, the innermost frame first, as in py-spy's JSON, without what only a tracer knows."""
    threading, pid = sys.modules.get("threading"), os.getpid()
    main = getattr(getattr(threading, "_main_thread", None), "ident", None)
    found = []
    for ident, frame in sys._current_frames().items():
        thread = getattr(threading, "_active", {}).get(ident)
        native = pid if ident == main else getattr(thread, "native_id", None)
        found.append({"pid": pid, "thread_id": ident, "thread_name": getattr(thread, "name", ""),
                      "os_thread_id": native, "active": True, "owns_gil": False, "frames": _frames(frame)})  # fmt: skip
    return found


def write_stacks(path: str) -> None:
    """Write the stacks to a file in the node's own memory, for ranks that py-spy may not trace. Raises OSError.

    It needs the GIL: a rank whose native code holds it does not answer.
    """
    from json import dumps

    write_whole(path, dumps(stacks_of_all_threads()).encode("utf-8", "backslashreplace"))


def _frames(frame: FrameType | None) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append({"name": name, "filename": code.co_filename, "line": frame.f_lineno or 0, "locals": None})
        frame = frame.f_back
    return found
