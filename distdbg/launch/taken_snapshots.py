"""The agent's side of memory snapshots: what a rank has written into node-local memory goes into the run directory.

    {"op": "snapshot", "id": …, "files": [{"file": "00003.memory-…", "name": "oom-step000412-…"}], "why": "oom"}
    {"event": "memory-snapshot", "rank": 3, "id": …, "files": ["oom-step000412-001.pickle.gz"], "why": "oom"}

The event is written after the files. Nothing here touches the run directory: the disk's thread does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdbg.launch.node import Node
from distdbg.launch.taken_files import take_files


def take_snapshot(node: Node, folder: Path, rank: int, message: Mapping[str, Any]) -> None:
    """`folder` is the rank's own for snapshots. Names that lead elsewhere are not followed."""
    names = take_files(node, folder, message)
    told = {key: message.get(key) for key in ("id", "why", "step", "missing", "because")}
    node.event("memory-snapshot", rank=rank, files=names, **told)
