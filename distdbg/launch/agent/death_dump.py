"""Collect the state of a node's ranks right after one of them died, before torchrun ends the others.

    {"event": "death-dump", "folder": …}   at once, so that the other nodes look, too
    {"event": "dumped", "folder": …, "ranks": …}

Each living rank's flight recorder (10 to 30 ms, no pause, no GIL), its place in the kernel, its page; of the dead one
its page and the calls that it made, with their scripts. Stacks take too long. Threads ask and read, the disk thread
writes: nothing waits for a file system, and nothing longer than `within`.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distdbg.collect.machine import recorder
from distdbg.collect.machine.kept_source import MOST_SOURCES, read_kept_source
from distdbg.collect.machine.process_look import look
from distdbg.collect.machine.worker_server import RequestFailed
from distdbg.diagnosis.timeline.liveness import still_counts
from distdbg.evidence.frames import is_user
from distdbg.evidence.recorder.calls import files_of_calls
from distdbg.launch.agent.node import Node
from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.io.loop import Loop
from distdbg.protocol.agent_events import DeathDump, Dumped
from distdbg.protocol.dump import COLLECTED, NodePart, PageReading, RankPart, collected, failed, not_tried

WITHIN_S = 0.3
_THREADS = 16
#: All recorders of a node together: what the disk thread keeps while a file system does not answer is bounded.
_MOST_BYTES = 32 << 20
_NO_TIME = "there was no time between another rank's death and the end"


class NodeDeathDump:
    """Begins at once; `done` when every rank has been asked; `write` hands over what has come until then."""

    def __init__(self, node: Node, folder: Path, ranks: Sequence[RankProcess], within_s: float = WITHIN_S) -> None:
        self._node = node
        self._folder = folder
        self._ranks = list(ranks)
        self._begun = time.monotonic()
        self._until = self._begun + within_s
        self._todo: queue.SimpleQueue[RankProcess] = queue.SimpleQueue()
        self._found: dict[int, dict[str, Any]] = {}
        #: of each rank the files of its recorders
        self._data: dict[int, dict[str, bytes]] = {}
        self._sources: dict[str, tuple[str, bytes]] = {}
        self._has_sources = threading.Event()
        threading.Thread(target=self._read_sources, name="last-sources", daemon=True).start()
        living = [r for r in self._ranks if r.alive]
        self._asked = len(living)
        for rank in living:
            self._todo.put(rank)
        for _ in range(min(_THREADS, len(living))):
            threading.Thread(target=self._work, name="last-look", daemon=True).start()

    @property
    def done(self) -> bool:
        complete = len(self._found) >= self._asked and self._has_sources.is_set()
        return not self._ranks or complete or time.monotonic() >= self._until

    def _read_sources(self) -> None:
        """The scripts may be on a file system that does not answer."""
        files: dict[str, None] = {}
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                sites = self._stem(rank, "sites").read_text(encoding="utf-8", errors="replace")
                files |= dict.fromkeys(filter(is_user, files_of_calls(sites)))
        for file in list(files)[:MOST_SOURCES]:
            with contextlib.suppress(OSError):
                if (kept := read_kept_source(file)) is not None:
                    self._sources = self._sources | {file: kept}  # `write` may read it meanwhile
        self._has_sources.set()

    def _work(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                rank = self._todo.get_nowait()
                self._found[rank.rank] = self._look(rank)

    def _look(self, rank: RankProcess) -> dict[str, Any]:
        left = self._until - time.monotonic()
        if left <= 0:
            return {"recorder": not_tried(_NO_TIME)}
        seen: dict[str, Any] = {"t": time.time(), "process": look(rank.pid or 0)}
        try:
            told = recorder.ask(self._stem(rank, "recorder"), rank.rank, left)
        except RequestFailed as error:
            return seen | {"recorder": failed(str(error))}
        files = recorder.files_of(told, rank.rank, 1)
        if sum(len(data) for kept in (*self._data.values(), files) for data in kept.values()) > _MOST_BYTES:
            return seen | {"recorder": not_tried("the recorders of this node were too large together")}
        self._data[rank.rank] = files
        return seen | {"recorder": collected(list(files))}

    def write(self) -> None:
        """Everything through the disk thread, the node's part last; then the event."""
        disk, found = self._node.disk, dict(self._found)
        data = {number: self._data[number] for number in found if number in self._data}
        if not self._ranks:
            return
        parts, outcomes = [], {}
        for rank in self._ranks:
            why = not_tried(_NO_TIME if rank.ended is None else "it had ended")
            seen = found.get(rank.rank) or {"recorder": why}
            page = PageReading.of(rank.page, time.monotonic_ns(), time.time_ns()).fields() if rank.page else None
            look_at = {"t": time.time(), "process": {}, "page": page, "stacks": why, "children": {}} | seen
            parts.append(RankPart(rank=rank.rank, pid=rank.pid, looks=[look_at]).fields())
            outcomes[str(rank.rank)] = COLLECTED if rank.rank in data else seen["recorder"]
            for kind in ("calls", "sites"):
                with contextlib.suppress(OSError):
                    kept = self._stem(rank, kind).read_bytes()
                    disk.write_whole(self._folder / "calls" / f"{rank.rank:05d}.{kind}", kept)
        for name, raw in (file for files in data.values() for file in files.items()):
            disk.write_whole(self._folder / name, raw)
        sources = self._sources
        for name, text in sources.values():
            disk.write_whole(self._folder / name, text)
        names = {file: name for file, (name, _) in sources.items()}
        node = NodePart(node_rank=self._node.node_rank, host=self._node.host, ranks=parts, sources=names)
        path = self._folder / "nodes" / f"{self._node.node_rank:04d}.json"
        disk.write_whole(path, json.dumps(node.fields()).encode())
        seconds = round(time.monotonic() - self._begun, 3)
        self._node.event(Dumped(folder=str(self._folder), seconds=seconds, ranks=outcomes, because=""))

    def _stem(self, rank: RankProcess, kind: str) -> Path:
        return self._node.folder / f"{rank.rank:05d}.{kind}"


def _went_on(before: tuple[int, ...] | None, now: tuple[int, ...] | None) -> bool:
    """Whether the counters moved. A rank that never trained still counts a few events while it cleans up."""
    if before is not None and now is not None and len(before) == len(now) == 1:
        return still_counts(before[0], now[0])
    return before != now


class DeathDumps:
    """Decides when to take one, and when an existing dump says more."""

    def __init__(self, loop: Loop, node: Node) -> None:
        self._loop = loop
        self._node = node
        self._dumped_at: dict[int, tuple[int, ...] | None] = {}
        #: attempts of which this node has taken one
        self._taken: set[int] = set()

    def begin(self, dead: RankProcess, ranks: Sequence[RankProcess]) -> NodeDeathDump:
        """`dead` has just ended; the caller waits for `done` as long as it can, and calls `write`.

        A rank whose script was over, and whose exit code could not be read, has most likely just finished. The first
        death of an attempt is the one to explain: those that torchrun ends for it, on other nodes a second later, would
        hide its dump behind one that knows less.
        """
        folder = self._node.run.attempt(self._node.attempt).dump("death")
        finished = dead.exit_code is None and dead.phase == "exiting"
        if finished or self._node.attempt in self._taken or not self._can_look(ranks):
            return NodeDeathDump(self._node, folder, ())
        living = [r for r in ranks if r.alive]
        for rank in living:
            rank.sample()
        # As long as the ranks have not moved since the last dump, that one says more.
        if self._dumped_at and not any(_went_on(self._dumped_at.get(r.rank, ()), r.pace()) for r in living):
            return NodeDeathDump(self._node, folder, ())
        self.note_dumped(ranks)
        self._taken.add(self._node.attempt)
        self._node.event(DeathDump(folder=str(folder), attempt=self._node.attempt))
        return NodeDeathDump(self._node, folder, ranks)

    def beside(self, folder: Path, ranks: Sequence[RankProcess]) -> None:
        """A rank of another node has died; here no rank is paused, and nothing waits."""
        if self._can_look(ranks):
            self.note_dumped(ranks)
            self._taken.add(self._node.attempt)
            self._finish(NodeDeathDump(self._node, folder, ranks))

    def _finish(self, look: NodeDeathDump) -> None:
        if look.done:
            look.write()
        else:
            self._loop.after(0.02, lambda: self._finish(look))

    def note_dumped(self, ranks: Sequence[RankProcess]) -> None:
        self._dumped_at = {r.rank: r.pace() for r in ranks if r.alive}

    def _can_look(self, ranks: Sequence[RankProcess]) -> bool:
        """Whether a recorder can be read. Before the first process group no rank has one; the ranks' calls can be read
        after their death."""
        called = any(r.page is not None and r.page.calls for r in ranks)
        return called or any(r.alive and (self._node.folder / f"{r.rank:05d}.recorder").exists() for r in ranks)
