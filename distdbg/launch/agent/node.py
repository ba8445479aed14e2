"""What the parts of an agent share: its node, its files, and how it writes events."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from distdbg.launch.io.disk import DiskWriter
from distdbg.launch.link.wire import Wire
from distdbg.protocol.message import Event
from distdbg.rundir import NodeFiles, RunDir


@dataclass
class Node:
    """`attempt` is the current one; its number chooses the files. `launcher` is None where nobody listens."""

    run: RunDir
    node_rank: int
    host: str
    folder: Path
    attempt: int
    disk: DiskWriter
    launcher: Wire | None = field(default=None)

    @property
    def files(self) -> NodeFiles:
        return self.run.attempt(self.attempt).node(self.node_rank, self.host)

    def event(self, message: Event) -> None:
        """To the node's events.jsonl and, where a launcher listens, to it at once."""
        record = message.record(time.time())
        self.disk.append(self.files.events, json.dumps(record, default=str).encode() + b"\n")
        if self.launcher is not None:
            self.launcher.send(record)
