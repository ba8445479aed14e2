"""Keeps the heartbeat page: what the rank does now, and how often it has done it.

Only what costs no frame on the script's stack is listened to: after a batch has come the rank computes, until an
optimizer has stepped.
"""

from __future__ import annotations

from distdbg.worker.page import COMPUTING, DATA, OTHER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distdbg.worker.bus import Bus
    from distdbg.worker.page import PageWriter


def subscribe(bus: Bus, page: PageWriter) -> None:
    def batch() -> None:
        page.count_batch()
        page.phase(COMPUTING)

    def step() -> None:
        page.step()
        page.phase(OTHER)

    bus.subscribe("data", lambda: page.phase(DATA))
    bus.subscribe("batch", batch)
    bus.subscribe("step", step)
