"""The agent's side of what a rank has written into node-local memory: snapshots, profiles, batches.

    {"op": "snapshot", "id": …, "files": [{"file": "00003.memory-…", "name": "oom-step000412-…"}], "why": "oom"}
    {"event": "memory-snapshot", "rank": 3, "id": …, "files": ["oom-step000412-001.pickle.gz"], "why": "oom"}
    {"event": "profile", "rank": 3, "id": …, "files": ["steps-20-25.json.gz"], "wanted": [20, 25], "first": 20, …}
    {"op": "nonfinite", "files": [{"file": "00003.nonfinite-001", "name": "batch.pt"}]}       (without an event)

The event is written after the files. Nothing here touches the run directory: the disk's thread does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdbg.launch.agent.node import Node
from distdbg.protocol.agent_events import MemorySnapshot, Profile


def take_files(node: Node, folder: Path, message: Mapping[str, Any]) -> list[str]:
    """The names of those that go into `folder`. Names that lead elsewhere are not followed."""
    names = []
    for entry in message.get("files") or ():
        file, name = str(entry.get("file")), str(entry.get("name"))
        if "/" not in file + name and not name.startswith("."):
            node.disk.take(folder / name, node.folder / file)
            names.append(name)
    return names


def take_and_tell(
    node: Node, kind: type[MemorySnapshot | Profile], folder: Path, rank: int, message: Mapping[str, Any]
) -> None:
    """The same, and an event that says what came: somebody has asked for it, or reads it in the report."""
    names = take_files(node, folder, message)
    told: dict[str, Any] = {key: message[key] for key in kind.types if key in message}
    node.event(kind(**{**told, "rank": rank, "files": names}))
