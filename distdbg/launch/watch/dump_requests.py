"""The asker's side of a dump: asks the agents, waits for what each has got, and accounts for every rank.

The manifest, written last, makes a folder a dump: {"schema": "distdbg.dump/1", "t": …, "reason": …, "by": …,
"world_size": …, "looks": …, "stalled": {"since": …, "quiet_s": …, "timeout_s": …} or null, "ranks": {"0": "collected",
"3": {"failed": …}, "7": {"not_tried": …}}}. Nothing here touches the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "distdbg.dump/1"
#: What an agent answers to a request while it takes another dump.
BUSY = "another dump is being taken on this node"
#: Beyond the agents' own deadlines: the way there and back.
_LATE_S = 4.0


@dataclass
class OpenDump:
    """One that is being taken. `nodes` have not answered yet; `until` is on the caller's clock."""

    folder: Path
    reason: str
    by: str
    t: float
    until: float
    nodes: set[int]
    looks: int
    stalled: dict[str, Any] | None
    ranks: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    because: list[str] = field(default_factory=list)

    def manifest(self, ranks: Mapping[int, int]) -> dict[str, Any]:
        """`ranks`: every rank of the job with its node."""
        told = {str(rank): self._silent(node) for rank, node in sorted(ranks.items())} | self.ranks
        return {
            "schema": SCHEMA,
            "t": self.t,
            "reason": self.reason,
            "by": self.by,
            "world_size": len(told),
            "looks": self.looks,
            "stalled": self.stalled,
            "seconds": self.seconds,
            "ranks": told,
        }

    def _silent(self, node: int) -> dict[str, str]:
        if node in self.nodes:
            return {"not_tried": f"the agent of node {node} did not answer in time"}
        return {"not_tried": "its agent does not know this rank"}


class DumpRequests:
    """`tell` sends a request to every agent."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._open: dict[str, OpenDump] = {}

    def ask(
        self,
        folder: Path,
        reason: str,
        *,
        by: str,
        t: float,
        now: float,
        nodes: Collection[int],
        options: Mapping[str, Any],
        stalled: dict[str, Any] | None = None,
    ) -> None:
        """`options` are the request's: looks, interval, within, native."""
        until = now + float(options["within"]) + _LATE_S
        self._open[str(folder)] = OpenDump(folder, reason, by, t, until, set(nodes), int(options["looks"]), stalled)
        self._tell({"request": "dump", "folder": str(folder), **options})

    def expect(self, dump: OpenDump) -> None:
        """One that an agent began by itself; a second word of it changes nothing."""
        self._open.setdefault(str(dump.folder), dump)

    @property
    def busy(self) -> bool:
        """Whether agents may still be at work on a dump that was asked for here."""
        return any(dump.reason != "death" for dump in self._open.values())

    def hear(self, node_rank: int, event: Mapping[str, Any]) -> None:
        """An agent's `dumped`."""
        dump = self._open.get(str(event.get("folder")))
        if dump is None:
            return
        dump.nodes.discard(node_rank)
        dump.ranks |= event.get("ranks") or {}
        dump.seconds = max(dump.seconds, float(event.get("seconds") or 0.0))
        if event.get("because"):
            dump.because.append(f"node {node_rank}: {event['because']}")

    def done(self, now: float, *, all_of_them: bool = False) -> list[OpenDump]:
        """Those that every node has answered to, or that are not waited for any longer; each once."""
        found = [d for d in self._open.values() if all_of_them or not d.nodes or now >= d.until]
        for dump in found:
            del self._open[str(dump.folder)]
        return found
