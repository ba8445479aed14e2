"""What the script's own files say, where a guard is about to speak of something that they may do by hand."""

from __future__ import annotations

import re
import sys

from distdbg.worker.exceptions import belongs_to_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

#: Gradients that are divided or multiplied by hand.
CHANGES_GRADIENTS = re.compile(
    r"\bgrad\w*\b[^=\n]*(/=|\*=|\.div_|\.mul_)|_foreach_(div|mul)_|\.grad\s*=[^=\n]*[/*]|multiply_grads|get_scale\("
)
#: A loss that is multiplied or divided by a loss function's own arguments is not looked for: its graph shows it.
_FRAMES = 40


def mentioned(what: re.Pattern[str]) -> bool:
    """Whether a file of the user's that stands on the stack says so, in any line."""
    from linecache import getlines

    frame: FrameType | None = sys._getframe(1)
    files = set()
    for _ in range(_FRAMES):
        if frame is None:
            break
        files.add(frame.f_code.co_filename)
        frame = frame.f_back
    return any(what.search(line) for file in files if belongs_to_user(file) for line in getlines(file))
