"""The dumps that a launch requests of its agents: who has not answered, and what was collected of each rank.

Nothing here touches the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distdbg.protocol.agent_events import Dumped
from distdbg.protocol.dump import Manifest, not_tried
from distdbg.protocol.requests import Request, TakeDump

#: Beyond the agents' own deadlines: the way there and back.
_LATE_S = 4.0
_UNKNOWN_RANK = "its agent does not know this rank"


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

    def manifest(self, ranks: Mapping[int, int]) -> Manifest:
        """`ranks`: every rank of the job with its node."""
        told = {str(rank): not_tried(self._why_silent(node)) for rank, node in sorted(ranks.items())} | self.ranks
        return Manifest(
            t=self.t, reason=self.reason, by=self.by, world_size=len(told), looks=self.looks, stalled=self.stalled,
            seconds=self.seconds, ranks=told,
        )  # fmt: skip

    def _why_silent(self, node: int) -> str:
        return f"the agent of node {node} did not answer in time" if node in self.nodes else _UNKNOWN_RANK


class DumpRequests:
    """`tell` sends a request to every agent."""

    def __init__(self, tell: Callable[[Request], None]) -> None:
        self._tell = tell
        self._open: dict[str, OpenDump] = {}

    def ask(
        self,
        request: TakeDump,
        reason: str,
        *,
        t: float,
        now: float,
        nodes: Collection[int],
        stalled: dict[str, Any] | None = None,
    ) -> None:
        until = now + request.within + _LATE_S
        folder = Path(request.folder)
        self._open[str(folder)] = OpenDump(folder, reason, "launch", t, until, set(nodes), request.looks, stalled)
        self._tell(request)

    def expect(self, dump: OpenDump) -> None:
        """One that an agent began by itself; a second word of it changes nothing."""
        self._open.setdefault(str(dump.folder), dump)

    @property
    def busy(self) -> bool:
        """Whether agents may still be at work on a dump that was asked for here."""
        return any(dump.reason != "death" for dump in self._open.values())

    def hear(self, node_rank: int, event: Dumped) -> None:
        dump = self._open.get(event.folder)
        if dump is None:
            return
        dump.nodes.discard(node_rank)
        dump.ranks |= event.ranks
        dump.seconds = max(dump.seconds, event.seconds or 0.0)
        if event.because:
            dump.because.append(f"node {node_rank}: {event.because}")

    def done(self, now: float, *, all_of_them: bool = False) -> list[OpenDump]:
        """Those that every node has answered to, or that are not waited for any longer; each once."""
        found = [d for d in self._open.values() if all_of_them or not d.nodes or now >= d.until]
        for dump in found:
            del self._open[str(dump.folder)]
        return found
