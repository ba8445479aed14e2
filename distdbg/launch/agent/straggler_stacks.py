"""Sample the stack of a straggler while the others wait for it.

The launcher knows from all ranks' phases which rank is late in which phase (watch/straggler_watch.py). A thread reads
the rank's heartbeat page, and runs py-spy when the rank has been in that phase for longer than the others are. A sample
counts only if the rank was in the same visit to the phase afterwards. Each of the eight samples pauses the rank for
milliseconds (benchmarks/capture_pause.py).
"""

from __future__ import annotations

import contextlib
import linecache
import queue
import threading
import time
from pathlib import Path

from distdbg.collect.machine import pyspy
from distdbg.evidence.frames import Origin
from distdbg.evidence.stacks.threads import judged_thread, read_threads
from distdbg.launch.agent.dumping import Dumper
from distdbg.launch.agent.node import Node
from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.io.loop import Loop
from distdbg.plain_text import first_words
from distdbg.protocol.agent_events import StragglerSample
from distdbg.protocol.page import PAGE_BYTES, Page, read_page
from distdbg.protocol.requests import SampleStraggler

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

    def ask(self, request: SampleStraggler, ranks: dict[int, RankProcess]) -> None:
        rank = ranks.get(request.rank)
        if rank is not None and rank.alive and rank.pid:
            self._hand_over(_Sampler(rank.rank, rank.pid, rank.page_path, request, self._dumper))

    def _hand_over(self, sampler: _Sampler) -> None:
        """Write the thread's samples from the event loop, which owns the disk."""
        alive = sampler.is_alive()
        with contextlib.suppress(queue.Empty):
            while True:
                self._node.event(sampler.samples.get_nowait())
        if alive:
            self._loop.after(_POLL_S, lambda: self._hand_over(sampler))


class _Sampler(threading.Thread):
    def __init__(self, rank: int, pid: int, page_path: Path, request: SampleStraggler, dumper: Dumper) -> None:
        super().__init__(name="straggler-stacks", daemon=True)
        self.samples: queue.SimpleQueue[StragglerSample] = queue.SimpleQueue()
        self._rank, self._pid, self._page_path = rank, pid, page_path
        self._phase, self._usual_ms = request.phase, request.usual_ms
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

    def _sample(self, older_than_ms: float) -> StragglerSample | None:
        before = self._page()
        if before is None or before.phase != self._phase or self._dumper.busy:  # a dump must not find it held by us
            return None
        age_ms = (time.monotonic_ns() - before.phase_ns) / 1e6
        if age_ms <= older_than_ms:
            return None
        threads = read_threads(pyspy.stacks(self._pid, within_s=_PYSPY_WITHIN_S))
        after, main = self._page(), judged_thread(threads, self._pid)
        if main is None or after is None or (after.phase, after.phase_ns) != (before.phase, before.phase_ns):
            return None
        frames = [frame for frame in main.frames if frame.origin is not Origin.OURS][:_MOST_FRAMES]
        users = next((frame for frame in frames if frame.users), None)
        return StragglerSample(
            rank=self._rank,
            phase=self._phase,
            for_ms=round(age_ms, 1),
            usual_ms=round(self._usual_ms, 1),
            frames=[[frame.file, frame.line, frame.function] for frame in frames],
            source=first_words(linecache.getline(users.file, users.line).strip(), 200) if users else "",
        )

    def _page(self) -> Page | None:
        return read_page(self._page_path.read_bytes()[:PAGE_BYTES])
