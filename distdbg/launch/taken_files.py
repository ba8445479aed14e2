"""The agent's side of files that a rank hands over: from node-local memory into the run directory.

    {"op": "nonfinite", "files": [{"file": "00003.nonfinite-001", "name": "batch.pt"}]}

Nothing here touches the run directory: the disk's thread does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdbg.launch.node import Node


def take_files(node: Node, folder: Path, message: Mapping[str, Any]) -> list[str]:
    """The names of those that go into `folder`. Names that lead elsewhere are not followed."""
    names = []
    for entry in message.get("files") or ():
        file, name = str(entry.get("file")), str(entry.get("name"))
        if "/" not in file + name and not name.startswith("."):
            node.disk.take(folder / name, node.folder / file)
            names.append(name)
    return names
