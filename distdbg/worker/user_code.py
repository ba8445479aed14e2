"""Find the user's own code: on the stack, in source files, and in comments that silence a guard."""

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


def users_line() -> Where | None:
    """The line of the innermost frame that is the user's own."""
    frame: FrameType | None = sys._getframe(1)
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
