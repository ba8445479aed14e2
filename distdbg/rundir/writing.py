"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path


def write_whole(path: Path, data: bytes | str) -> None:
    """Write under another name, then rename: a reader sees the old file or the new one, never half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    try:
        temporary.write_bytes(raw)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_json(path: Path, value: object) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=True, default=str) + "\n")
