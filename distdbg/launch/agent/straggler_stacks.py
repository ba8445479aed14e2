"""Where a rank stands while it keeps the others waiting: its stack, sampled while it is late.

The launcher asks, once it knows from all ranks' phases who is late and in which phase (watch/straggler_watch.py):

    {"request": "late-look", "rank": 1, "phase": "data", "usual_ms": 11.8}

The answer is one event a sample, innermost frame first:

    {"event": "late", "rank": 1, "phase": "data", "for_ms": 83.0, "usual_ms": 11.8, "frames": [[file, line, function]],
     "source": "what stands in the innermost line of the user's code"}

A thread looks at the rank's heartbeat page, and has py-spy look when the rank has been in that phase for longer than
the others take for it. A sample counts only where the rank was still in the same visit to the phase afterwards. Each
pauses the rank for milliseconds (benchmarks/capture_pause.py), and there are eight.
"""

from __future__ import annotations

import contextlib
import linecache
import queue
import threading
import time
from pathlib import Path
from typing import Any

from distdbg.collect.machine import pyspy
from distdbg.evidence.frames import Origin
from distdbg.evidence.stacks.threads import main_thread, read_threads
from distdbg.launch.agent.dumping import Dumper
from distdbg.launch.agent.node import Node
from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.io.loop import Loop
from distdbg.protocol.agent_events import Late
from distdbg.protocol.page import PAGE_BYTES, Page, read_page

_SAMPLES = 8
_APART_S = 0.5
_LOOK_EVERY_S = 0.02
#: A phase that a step visits several times is never longer than what the others take for all visits together.
_ANY_AGE_AFTER_S = 8.0
_WITHIN_S = 30.0
_PYSPY_WITHIN_S = 3.0
_MOST_FRAMES = 12
_POLL_S = 0.5


class StragglerStacks:
    """Takes the launcher's requests; an agent has one."""

    def __init__(self, loop: Loop, node: Node, dumper: Dumper) -> None:
        self._loop = loop
        self._node = node
        self._dumper = dumper

    def ask(self, request: dict[str, Any], ranks: dict[int, RankProcess]) -> None:
        rank = ranks.get(int(request.get("rank", -1)))
        if rank is not None and rank.alive and rank.pid:
            look = _LateLook(rank.pid, rank.page_path, str(request["phase"]), float(request["usual_ms"]), self._dumper)
            self._hand_over(rank.rank, look)

    def _hand_over(self, rank: int, look: _LateLook) -> None:
        """From the thread to the disk, which belongs to the loop."""
        going = look.is_alive()
        with contextlib.suppress(queue.Empty):
            while True:
                self._node.event(Late(rank=rank, **look.samples.get_nowait()))
        if going:
            self._loop.after(_POLL_S, lambda: self._hand_over(rank, look))


class _LateLook(threading.Thread):
    def __init__(self, pid: int, page_path: Path, phase: str, usual_ms: float, dumper: Dumper) -> None:
        super().__init__(name="late-look", daemon=True)
        self.samples: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._pid, self._page_path = pid, page_path
        self._phase, self._usual_ms = phase, usual_ms
        self._dumper = dumper
        self.start()

    def run(self) -> None:
        """No page, no py-spy, no permission: then there are no samples, and the finding goes without."""
        begun = time.monotonic()
        taken = 0
        with contextlib.suppress(OSError, pyspy.PySpyFailed, ValueError, TypeError, AttributeError):
            while taken < _SAMPLES and (spent := time.monotonic() - begun) < _WITHIN_S:
                sample = self._sample(0.0 if spent > _ANY_AGE_AFTER_S and not taken else self._usual_ms)
                if sample is not None:
                    self.samples.put(sample)
                    taken += 1
                time.sleep(_LOOK_EVERY_S if sample is None else _APART_S)

    def _sample(self, older_than_ms: float) -> dict[str, Any] | None:
        before = self._page()
        if before is None or before.phase != self._phase or self._dumper.busy:  # a dump must not find it held by us
            return None
        age_ms = (time.monotonic_ns() - before.phase_ns) / 1e6
        if age_ms <= older_than_ms:
            return None
        threads = read_threads(pyspy.stacks(self._pid, within_s=_PYSPY_WITHIN_S))
        after, main = self._page(), main_thread(threads, self._pid)
        if main is None or after is None or (after.phase, after.phase_ns) != (before.phase, before.phase_ns):
            return None
        frames = [frame for frame in main.frames if frame.origin is not Origin.OURS][:_MOST_FRAMES]
        users = next((frame for frame in frames if frame.users), None)
        return {
            "phase": self._phase,
            "for_ms": round(age_ms, 1),
            "usual_ms": round(self._usual_ms, 1),
            "frames": [[frame.file, frame.line, frame.function] for frame in frames],
            "source": linecache.getline(users.file, users.line).strip()[:200] if users else "",
        }

    def _page(self) -> Page | None:
        return read_page(self._page_path.read_bytes()[:PAGE_BYTES])
