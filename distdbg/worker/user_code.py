"""Find the user's own code, on the stack, in source files and in comments, and copy the variables of its functions."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from types import FrameType

#: File, line and function.
Where = list[object]
_MOST_FRAMES = 40


def belongs_to_user(filename: str) -> bool:
    """Inside a rank, the folders of torch and of the standard library are known, too."""
    from distdbg.evidence.frames import is_user

    if not is_user(filename):
        return False
    for name in ("os", "torch"):
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        if file and filename.startswith(file.rpartition("/")[0] + "/"):
            return False
    return True


def users_line(frame: FrameType | None = None) -> Where | None:
    """The line of the innermost frame, from `frame` outward, that is the user's own."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if belongs_to_user(frame.f_code.co_filename):
            return [frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name]
        frame = frame.f_back
    return None


def frames_above(most: int = _MOST_FRAMES) -> Iterator[FrameType]:
    """The frames of the stack, from that which called the caller outward."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(most):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def mentioned(pattern: re.Pattern[str]) -> bool:
    """Whether any line of a user's file on the stack matches."""
    from linecache import getlines

    files = {frame.f_code.co_filename for frame in frames_above()}
    return any(pattern.search(line) for file in files if belongs_to_user(file) for line in getlines(file))


def is_ignored(guard: str, where: Where | None) -> bool:
    """True where that line of the source, or a comment above it, says `# distdbg: ignore[ID]`, or without an id; or
    where any line says `# distdbg: ignore-file[ID]`."""
    if where is None or not isinstance(where[1], int):
        return False
    from linecache import getlines

    line, lines = where[1], getlines(str(where[0]))
    above = lines[line - 2 : line - 1] if line > 1 else []
    near = lines[line - 1 : line] + [source for source in above if source.lstrip().startswith("#")]
    return any(_names(guard, source, "ignore") for source in near) or any(
        _names(guard, source, "ignore-file") for source in lines
    )


def _names(guard: str, source: str, word: str) -> bool:
    _, found, rest = source.partition(f"# distdbg: {word}")
    if not found or rest.startswith("-"):
        return False
    return not rest.startswith("[") or guard in rest[1:].partition("]")[0].replace(" ", "").split(",")


_A_FUNCTIONS = 0x1  # CO_OPTIMIZED: a module's or a class body's `f_locals` is where its variables are
#: A script that calls one of these may have kept the dict, or changed it: a look would fill it with the present values.
_HOLD_IT = {"locals", "exec"}


def _references() -> int:
    """The reference count of a dict held by its frame and one variable; 0 without one, as from Python 3.13 on."""
    kept = sys._getframe().f_locals
    return sys.getrefcount(kept) if type(kept) is dict else 0


_OURS = _references()


def variables(frame: FrameType) -> dict[str, object]:
    """A copy of a function's variables, to be dropped soon. Empty where the look would have an effect.

    Up to Python 3.12 `f_locals` of a function's frame fills a dict that lives as long as the frame, and keeps the
    values that the variables had: after a look at a training loop the output of a failed attempt would stay. So the
    dict is emptied again; the frame fills it anew at the next access."""
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
