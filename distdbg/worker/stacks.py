"""Write the stacks of all threads of this process, for ranks that py-spy may not trace.

The format is py-spy's JSON, without what only a tracer knows. It needs the GIL: a rank whose native code holds it does
not answer.
"""

from __future__ import annotations

import os
import sys

from distdbg.whole_file import write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_MOST_FRAMES = 300


def of_all_threads() -> list[dict[str, object]]:
    """One object a thread, the innermost frame first."""
    threading, pid = sys.modules.get("threading"), os.getpid()
    main = getattr(getattr(threading, "_main_thread", None), "ident", None)
    found = []
    for ident, frame in sys._current_frames().items():
        thread = getattr(threading, "_active", {}).get(ident)
        native = pid if ident == main else getattr(thread, "native_id", None)
        found.append({"pid": pid, "thread_id": ident, "thread_name": getattr(thread, "name", ""),
                      "os_thread_id": native, "active": True, "owns_gil": False, "frames": _frames(frame)})  # fmt: skip
    return found


def write(path: str) -> None:
    """To a file in the node's own memory. Raises OSError."""
    from json import dumps

    write_whole(path, dumps(of_all_threads()).encode("utf-8", "backslashreplace"))


def _frames(frame: FrameType | None) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append({"name": name, "filename": code.co_filename, "line": frame.f_lineno or 0, "locals": None})
        frame = frame.f_back
    return found
