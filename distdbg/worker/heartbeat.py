"""Keeps the heartbeat page: what the rank was last heard to begin, and how often.

A phase ends with whatever is heard next. So "computing" is a rank that has got its batch and of which no more is known
(no DDP, no FSDP: its forward cannot be heard), and "backward" lasts until the optimizer begins.
"""

from __future__ import annotations

from distdbg.worker.page import BACKWARD, COMPUTING, DATA, FORWARD, OPTIMIZER, OTHER, SAVING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from distdbg.worker.bus import Bus
    from distdbg.worker.page import PageWriter


def subscribe(bus: Bus, page: PageWriter) -> None:
    def phase(code: int) -> Callable[[object], None]:
        begin = page.phase
        return lambda _subject: begin(code)

    bus.subscribe("data", phase(DATA))
    bus.subscribe("batch", lambda _iterator: page.batch(COMPUTING))
    bus.subscribe("data-end", phase(OTHER))
    bus.subscribe("forward", lambda _module: page.forward(FORWARD))
    bus.subscribe("forward-end", phase(COMPUTING))
    bus.subscribe("backward", lambda _roots: page.backward(BACKWARD))
    bus.subscribe("optimizer", phase(OPTIMIZER))
    bus.subscribe("step", lambda _optimizer: page.step(OTHER))
    bus.subscribe("save", lambda _path: page.save(SAVING))
    bus.subscribe("save-end", phase(OTHER))
