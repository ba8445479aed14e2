"""Check free space where a job writes: the folder of its runs, /dev/shm (loaders, NCCL), the temporary folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any


def look(folder: Path, token: str = "") -> dict[str, Any]:
    """places: path, for what, bytes and inodes free and in all, or why not; sees_token: None without a token."""
    places = {"runs": folder, "shared memory": Path("/dev/shm"), "temporary files": Path(tempfile.gettempdir())}
    return {
        "places": [{"of": of, **_place(path)} for of, path in places.items()],
        "sees_token": (folder / token).exists() if token else None,
    }


def _place(path: Path) -> dict[str, Any]:
    try:
        there = os.statvfs(path)
    except OSError as error:
        return {"path": str(path), "because": error.strerror}
    return {
        "path": str(path),
        "because": "" if os.access(path, os.W_OK) else "nothing can be written there",
        "free": there.f_bavail * there.f_frsize,
        "total": there.f_blocks * there.f_frsize,
        "inodes_free": there.f_favail,
        "inodes": there.f_files,
    }
