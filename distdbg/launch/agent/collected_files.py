"""Move what a rank wrote into node-local memory to the run directory: snapshots, profiles, batches, tables of shapes.

A message of the rank names its files: {"file": name in the node's folder, "name": name in the run directory}. The
disk's thread moves them; the event is written after the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distdbg.evidence.jsonl import dicts
from distdbg.launch.agent.node import Node
from distdbg.protocol.agent_events import MemorySnapshot, Profile


def take_files(node: Node, folder: Path, files: Sequence[object] | None) -> list[str]:
    """The names of those that go into `folder`; a name with a folder in it, or a hidden one, is ignored."""
    names = []
    for entry in dicts(files):
        file, name = str(entry.get("file")), str(entry.get("name"))
        if "/" not in file + name and not name.startswith("."):
            node.disk.take(folder / name, node.folder / file)
            names.append(name)
    return names


def take_and_report(
    node: Node, kind: type[MemorySnapshot | Profile], folder: Path, rank: int, message: Mapping[str, Any]
) -> None:
    """Of a message that has the fields of `kind`."""
    told = kind.from_record(message)
    node.event(kind(**{**told.fields(), "rank": rank, "files": take_files(node, folder, told.files)}))
