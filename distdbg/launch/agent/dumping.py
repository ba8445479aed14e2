"""Take a dump of this node's ranks: watch/capture.py runs as a child with a deadline, and an event reports the outcome.

Nothing here touches the run directory, and nothing waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from distdbg.collect.machine import procfs
from distdbg.collect.machine.pyspy import probe
from distdbg.launch.agent.node import Node
from distdbg.launch.agent.rank_watch import RankWatch
from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.io import processes
from distdbg.launch.io.loop import Loop
from distdbg.plain_text import last_words
from distdbg.protocol.agent_events import Dumped, Phases, RankResumed, SamplingAccess
from distdbg.protocol.dump import BUSY, CaptureRequest, CaptureTarget, failed, not_tried
from distdbg.protocol.requests import TakeDump, WhichExceptions, WhichModel, WhichStacks

_CAPTURE = Path(__file__).resolve().parents[1] / "watch" / "capture.py"
#: Beyond its own deadline the child gets so long to write down what it has.
_LATE_S = 2.0
_PROBE_S = 1.0
_MOST_ANSWER = 4 << 20


class Dumper:
    """One dump at a time, of the ranks that `watch` has."""

    def __init__(self, loop: Loop, node: Node, watch: RankWatch) -> None:
        self._loop = loop
        self._node = node
        self._watch = watch
        self._child: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._answer = b""
        self._request = CaptureRequest(folder="", node_rank=node.node_rank, host=node.host, targets=[])
        self._targets: list[CaptureTarget] = []
        self._stopped_before: set[int] = set()
        self._begun = 0.0
        self._late = False
        loop.every(_PROBE_S, self._probe)

    def _probe(self) -> bool:
        """Once: what a dump will be able to see of a rank, which by then has had the time to allow it."""
        for rank in self._watch.living:
            age = time.monotonic() - (rank.page.started_ns / 1e9 if rank.page else rank.started_monotonic + 10.0)
            if age > _PROBE_S and rank.pid is not None:
                self._node.event(SamplingAccess(rank=rank.rank, more=probe(rank.pid)))
                return True
        return False

    def ask(self, request: TakeDump) -> None:
        """Begin a dump. One event reports what was collected."""
        folder = Path(request.folder)
        inside = self._node.run.attempt(self._node.attempt).folder / "dumps"
        if folder.parent.resolve() != inside.resolve() or folder.name in ("", "..", "."):
            self._tell(folder, {}, f"{str(folder)!r} is no dump of attempt {self._node.attempt}")
        elif self._child is not None:
            self._tell(folder, {}, BUSY)
        else:
            self._start(request)

    @property
    def busy(self) -> bool:
        """Whether a dump is being taken."""
        return self._child is not None

    def stop(self) -> None:
        """The agent ends: so does the child, and what it leaves stopped goes on."""
        if self._child is not None:
            processes.kill_group(self._child.pid, signal.SIGKILL)
            self._go_on()

    def _start(self, request: TakeDump) -> None:
        self._begun, self._answer, self._late = time.monotonic(), b"", False
        self._watch.connections.ask(WhichModel(id="dump"), WhichExceptions(id="dump"))
        for look in range(request.looks):
            self._loop.after(look * request.interval, lambda: self._watch.connections.ask(WhichStacks()))
        self._node.event(Phases(ranks=self._watch.phases.shares()))
        self._targets = [
            CaptureTarget(rank=r.rank, pid=r.pid, stem=str(self._node.folder / f"{r.rank:05d}"))
            for r in self._watch.ranks.values()
            if r.alive and r.pid is not None
        ]
        self._stopped_before = {t.pid for t in self._targets if procfs.is_stopped(t.pid)}
        self._request = CaptureRequest(
            **request.fields(), node_rank=self._node.node_rank, host=self._node.host,
            targets=[target.fields() for target in self._targets], parent=os.getpid(),
        )  # fmt: skip
        try:
            self._child = _start(self._request)
            self._pidfd = os.pidfd_open(self._child.pid)
        except OSError as error:
            self._child = None
            self._tell(Path(request.folder), {}, f"the capture could not be started: {error.strerror}")
            return
        assert self._child.stdout is not None
        self._out = self._child.stdout.fileno()
        os.set_blocking(self._out, False)
        # from now on: a rank that dies while the dump is taken, and was stuck before, is in it
        self._watch.death_dumps.note_dumped(list(self._watch.ranks.values()))
        self._loop.watch(self._out, self._read)
        self._loop.watch(self._pidfd, self._ended)
        child = self._child
        self._loop.after(request.within + _LATE_S, lambda: self._too_late(child))

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._out, 1 << 16)
            self._answer = (self._answer + data)[:_MOST_ANSWER]
            if not data:
                self._loop.forget(self._out)

    def _too_late(self, child: subprocess.Popen[bytes]) -> None:
        """One that a file system holds cannot even be killed: it is left behind, and the next dump may begin."""
        if self._child is child:
            self._late = True
            processes.kill_group(child.pid, signal.SIGKILL)
            self._loop.after(1.0, lambda: self._finish() if self._child is child else None)

    def _ended(self) -> None:
        self._read()
        self._finish()

    def _finish(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        for descriptor in (self._pidfd, self._out):
            self._loop.forget(descriptor)
        os.close(self._pidfd)
        code = child.poll()
        with contextlib.suppress(OSError):
            child.stdout.close()  # type: ignore[union-attr]
        self._go_on()
        *words, last = [line for line in self._answer.decode("utf-8", "replace").splitlines() if line] or [""]
        ranks: dict[str, Any] = {}
        with contextlib.suppress(ValueError, AttributeError):
            ranks = json.loads(last).get("ranks", {})
        because = ""
        if not ranks and self._targets:
            because = last_words(" ".join([*words, last]), 300) or f"the capture ended with exit code {code}"
        if self._late:
            because = f"the capture did not end within {self._request.within:g} s"
        self._watch.death_dumps.note_dumped(list(self._watch.ranks.values()) if ranks else ())
        self._tell(Path(self._request.folder), ranks, because)

    def _tell(self, folder: Path, ranks: dict[str, Any], because: str) -> None:
        """Every rank of the node is in it."""
        known: dict[str, Any] = {str(r.rank): _why_not(r, because) for r in self._watch.ranks.values()}
        seconds = round(time.monotonic() - self._begun, 3) if self._begun else 0.0
        self._node.event(Dumped(folder=str(folder), seconds=seconds, ranks=known | ranks, because=because))

    def _go_on(self) -> None:
        """py-spy stops a rank for milliseconds, and may leave it so where it is killed. Who was stopped stays so."""
        for target in self._targets:
            if target.pid not in self._stopped_before and procfs.is_stopped(target.pid):
                processes.kill(target.pid, signal.SIGCONT)
                self._node.event(RankResumed(rank=target.rank))


def _start(request: CaptureRequest) -> subprocess.Popen[bytes]:
    """The request goes through memory: of thousands of ranks it would not fit into a pipe."""
    descriptor = os.memfd_create("distdbg-request", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, json.dumps(request.fields()).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        return subprocess.Popen(
            [sys.executable, str(_CAPTURE)],
            stdin=descriptor,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that py-spy dies with it
        )
    finally:
        os.close(descriptor)


def _why_not(rank: RankProcess, because: str) -> dict[str, str]:
    if rank.pid is None:
        return not_tried("it had not started")
    if rank.ended is None:
        return failed(because or "the capture reported nothing of it")
    how = "how is not known" if rank.exit_code is None else f"exit code {rank.exit_code}"
    return not_tried(f"it had ended ({how})")
