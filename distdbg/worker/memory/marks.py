"""Write the step and its phase beside each event of CUDA's history (torch 2.13 and later).

torch keeps one text for a device, and copies it into every event: up to 15 characters need no memory of their own. A
text that the script has set stays; each mark checks for one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

#: What a mark begins with; evidence/memory/trace.py reads it.
PREFIX = "ddbg"
FORWARD, BACKWARD, OPTIMIZER = "fbo"


class MemoryMarks:
    """Nothing where this torch cannot keep a text. Never raises."""

    def __init__(self) -> None:
        c = getattr(sys.modules.get("torch"), "_C", None)
        self._set: Callable[[str], None] | None = getattr(c, "_cuda_setMemoryMetadata", None)
        self._get: Callable[[], str] | None = getattr(c, "_cuda_getMemoryMetadata", None)
        self._text = ""

    def mark(self, step: int, phase: str) -> None:
        """From now on it is `phase` (a letter) of this step of the optimizer, which counts from 1."""
        if self._set is None or self._get is None:
            return
        try:
            if self._get() not in ("", self._text):
                return
            self._text = f"{PREFIX} {step} {phase}"
            self._set(self._text)
        except Exception:
            self._set = None
