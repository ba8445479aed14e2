"""Connections of torchrun and of this node's ranks to their agent: facts and files arrive, requests are sent.

A rank writes snapshots, profiles, batches and tables of shapes into node-local memory; its message names them:
{"file": name in the node's folder, "name": name in the run directory}. The disk's thread moves them there; the event is
written after the files.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distdbg.evidence.jsonl import dicts
from distdbg.launch.agent.node import Node
from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.io.loop import Loop
from distdbg.launch.link.wire import Wire
from distdbg.protocol import agent_events as events
from distdbg.protocol import facts
from distdbg.protocol.agent_events import MemorySnapshot, Profile
from distdbg.protocol.message import Message, Unreadable
from distdbg.protocol.requests import (
    Question,
    TakeProfile,
    TakeSnapshot,
    WhichExceptions,
    WriteProfile,
    WriteSnapshot,
)
from distdbg.rundir import RankFiles


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
    """Move the files of a message of `kind` to the run, and report it as an event."""
    reported = kind.from_record(message)
    node.event(kind(**{**reported.fields(), "rank": rank, "files": take_files(node, folder, message.get("files"))}))


class RankConnections:
    """`ranks` gives those of the newest attempt. `start` makes the answer for torchrun, which starts them."""

    def __init__(
        self,
        loop: Loop,
        node: Node,
        ranks: Callable[[], Mapping[int, RankProcess]],
        start: Callable[[Mapping[str, Any]], dict[str, Any]],
    ) -> None:
        self._loop = loop
        self._node = node
        self._ranks = ranks
        self._start = start
        self._peers: dict[Wire, RankProcess | None] = {}
        #: ranks that have not answered which exceptions they are handling
        self.awaited: set[int] = set()

    def serve(self, server: socket.socket) -> None:
        server.setblocking(False)
        self._loop.watch(server.fileno(), lambda: self._accept(server))

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            wire = Wire(server.accept()[0])
            self._peers[wire] = None
            self._loop.watch(wire.fileno(), lambda: self._hear(wire))

    def _hear(self, wire: Wire) -> None:
        descriptor = wire.fileno()
        for message in wire.receive():
            with contextlib.suppress(Unreadable):
                self._message(wire, message)
        if wire.closed and wire in self._peers:
            self._loop.forget(descriptor)
            del self._peers[wire]

    def _message(self, wire: Wire, message: dict[str, Any]) -> None:
        kind, rank = facts.kind_of(message), self._peers.get(wire)
        if kind is facts.Start:
            wire.send(self._start(facts.Start.from_record(message).envs))
        elif kind is facts.Ends:  # ranks that died before have been dealt with: their news came before this
            wire.send({})
        elif kind is facts.Hello:
            self._peers[wire] = self._ranks().get(facts.Hello.from_record(message).rank)
        elif rank is not None:
            self._from_rank(rank, kind, message)

    def _from_rank(self, rank: RankProcess, kind: type[Message] | None, message: dict[str, Any]) -> None:
        files, node = self._files(rank), self._node
        if kind is facts.GradientLine:
            node.disk.append(files.gradients, json.dumps(message).encode() + b"\n")
        elif kind is facts.ShapesFiles:
            take_files(node, files.folder, facts.ShapesFiles.from_record(message).files)
        elif kind is facts.OperationsFiles:
            take_files(node, files.folder, facts.OperationsFiles.from_record(message).files)
        elif kind is facts.NonFiniteFiles:
            take_files(node, files.nonfinite, facts.NonFiniteFiles.from_record(message).files)
        elif kind is facts.SnapshotFiles:
            take_and_report(node, events.MemorySnapshot, files.memory, rank.rank, message)
        elif kind is facts.ProfileFiles:
            take_and_report(node, events.Profile, files.profile, rank.rank, message)
        else:
            path = files.memory_lines if kind is facts.MemoryLine else files.facts
            line = json.dumps({"rank": rank.rank, **message})
            node.disk.append(path, line.encode("utf-8", "backslashreplace") + b"\n")
            rank.learn(message)
            if kind is facts.Handled and facts.Handled.from_record(message).id == "death":
                self.awaited.discard(rank.rank)

    def hear_rest(self, rank: RankProcess) -> None:
        """It has ended: its last messages may still be in the socket."""
        for wire in [wire for wire, peer in self._peers.items() if peer is rank]:
            self._hear(wire)

    # -- questions ------------------------------------------------------------------------------------------

    def _living_peers(self) -> list[tuple[Wire, RankProcess]]:
        return [(wire, rank) for wire, rank in self._peers.items() if rank is not None and rank.alive]

    def ask(self, *questions: Question) -> None:
        """Ranks that can answer send facts; the answer to WhichStacks is a file (worker/threads.py)."""
        for wire, _ in self._living_peers():
            for question in questions:
                wire.send(question.record())

    def ask_exceptions(self) -> None:
        """What are you handling right now? The answers arrive as facts."""
        self.awaited.clear()
        for wire, rank in self._living_peers():
            wire.send(WhichExceptions(id="death").record())
            self.awaited.add(rank.rank)

    def ask_files(self, request: TakeSnapshot | TakeProfile) -> None:
        """Each rank of the request answers by an event."""
        question: WriteSnapshot | WriteProfile = WriteSnapshot(id=request.id)
        kind: type[events.MemorySnapshot | events.Profile] = events.MemorySnapshot
        if isinstance(request, TakeProfile):
            question, kind = WriteProfile(id=request.id, first=request.first, steps=request.steps), events.Profile
        wanted, reached = request.ranks, set()
        for wire, rank in self._living_peers():
            if wanted is None or rank.rank in wanted:
                wire.send(question.record())
                reached.add(rank.rank)
        for rank in self._ranks().values():
            if rank.rank not in reached and (wanted is None or rank.rank in wanted):
                because = "it has no worker side" if rank.alive else "it does not run"
                self._node.event(kind(rank=rank.rank, id=request.id, because=because))

    def _files(self, rank: RankProcess) -> RankFiles:
        return self._node.run.attempt(rank.attempt).rank(rank.rank)
