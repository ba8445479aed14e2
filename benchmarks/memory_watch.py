"""What `--memory` costs: a step that is not written down, a line, a count of Python's containers, a host snapshot.

    python benchmarks/memory_watch.py

Microseconds of this thread's CPU time, with torch loaded and a DDP step's objects alive. Beside them: which share of
a job's time all lines take together, by the rule that chooses the steps (watch.py), for steps of 0.5 and of 50 ms.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace

import torch

from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.link import encode
from distdbg.worker.memory import figures
from distdbg.worker.memory.census import ContainerCensus
from distdbg.worker.memory.host import snapshot
from distdbg.worker.memory.watch import MemoryWatch


class Session:
    """As far as the watch asks. What would be sent is encoded, and counted."""

    def __init__(self, folder: str) -> None:
        self.stem, self.rank, self.sent, self.count = f"{folder}/0", 0, 0, 0
        self.page = SimpleNamespace(steps=lambda: self.count, batches=lambda: 0)
        self.model = SimpleNamespace(newest=lambda: None)
        self.link = SimpleNamespace(send=self._send)
        self.bus = Bus(ImportWatch(_fail), _fail)

    def _send(self, op: str, fields: dict[str, object], **_: object) -> None:
        self.sent += op == "memory"
        encode(fields)

    def fact(self, _kind: str, **fields: object) -> None:
        encode(fields)


def _fail(*why: object) -> None:
    raise SystemExit(f"not listened to: {why}")


def cost(call: Callable[[], object], times: int) -> float:
    """Microseconds of one call, the median of five turns."""
    found = []
    for _ in range(5):
        begun = time.thread_time_ns()
        for _ in range(times):
            call()
        found.append((time.thread_time_ns() - begun) / times / 1e3)
    return statistics.median(found)


def share(folder: str, step_s: float, steps: int) -> tuple[float, int]:
    """Part of the CPU time of this thread that the watch takes of steps of this length, and its lines."""
    session = Session(folder)
    watch = MemoryWatch(session, range(0))  # type: ignore[arg-type]
    watch._census = SimpleNamespace(at=lambda _: None, epochs=0)  # type: ignore[assignment]
    backward, optimizer, step = (session.bus.channel(e) for e in ("backward", "optimizer", "step"))
    spent, begun = 0, time.monotonic()
    for session.count in range(1, steps + 1):
        until = begun + session.count * step_s
        before = time.thread_time_ns()
        backward(None), optimizer(None), step(None)
        spent += time.thread_time_ns() - before
        time.sleep(max(0.0, until - time.monotonic()))
    return spent / 1e9 / (time.monotonic() - begun), session.sent


def main() -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(50)])
    torch.optim.AdamW(net.parameters())
    with tempfile.TemporaryDirectory() as folder:
        session = Session(folder)
        watch = MemoryWatch(session, range(0))  # type: ignore[arg-type]
        tell = session.bus.channel("backward")
        watch._on = False
        print(f"an event of a step that is not written down: {cost(lambda: tell(None), 20_000):.2f} us")
        print(f"RSS, three times a line: {cost(figures.quick, 2000):.1f} us")
        print(f"a line: {cost(lambda: watch._line(step=1), 500):.1f} us")
        print(f"PSS and shared memory: {cost(figures.slow, 20):.0f} us")
        print(f"a count of containers: {cost(lambda: ContainerCensus(session).count(20), 1) / 1e3:.0f} ms")  # type: ignore[arg-type]
        print(f"a host snapshot: {cost(lambda: snapshot(net), 1) / 1e3:.0f} ms")
        for step_s, steps in ((0.0005, 6000), (0.05, 100)):
            part, lines = share(folder, step_s, steps)
            print(f"steps of {step_s * 1e3:g} ms: {100 * part:.2f} % of the time, {lines} lines; without counts")


if __name__ == "__main__":
    main()
