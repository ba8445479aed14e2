"""Read a script of the user that a dump keeps, as it is now: a verdict that is built elsewhere can show its lines."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

#: A dump of one node keeps so many.
MOST_SOURCES = 64
_MOST_BYTES = 256 << 10


def read_kept_source(file: str) -> tuple[str, bytes] | None:
    """Its name within the dump, and its text; None where it is too large, or no regular file: a pipe may have no end.
    Raises OSError where it cannot be read."""
    path = Path(file)
    found = path.stat()
    if found.st_size > _MOST_BYTES or not stat.S_ISREG(found.st_mode):
        return None
    return f"sources/{hashlib.sha256(file.encode()).hexdigest()[:8]}-{path.name}", path.read_bytes()
