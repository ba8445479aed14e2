"""Keep the heartbeat page: the phase that the rank began last, and counts of events.

A phase ends with the next event: "forward" lasts until the backward, "backward" until the optimizer begins. "computing"
is a rank that has a batch and has sent no event since: without DDP or FSDP its forward sends none.
"""

from __future__ import annotations

from distdbg.worker.page import (
    ASKS,
    BACKWARD,
    BACKWARDS,
    BATCHES,
    COMPUTING,
    DATA,
    DATA_ENDS,
    FORWARD,
    FORWARDS,
    OPTIMIZER,
    OTHER,
    SAVES,
    SAVING,
    STEPS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distdbg.worker.bus import Bus
    from distdbg.worker.page import PageWriter


def subscribe(bus: Bus, page: PageWriter) -> None:
    bus.subscribe("data", page.ticker(DATA, ASKS))
    bus.subscribe("batch", page.ticker(COMPUTING, BATCHES))
    bus.subscribe("data-end", page.ticker(OTHER, DATA_ENDS))
    bus.subscribe("pass", page.pass_begins)
    bus.subscribe("data-end", page.pass_ends)
    bus.subscribe("forward", page.ticker(FORWARD, FORWARDS))
    bus.subscribe("backward", page.ticker(BACKWARD, BACKWARDS))
    bus.subscribe("optimizer", page.ticker(OPTIMIZER))
    bus.subscribe("step", page.ticker(OTHER, STEPS))
    bus.subscribe("save", page.ticker(SAVING, SAVES))
    bus.subscribe("save-end", page.ticker(OTHER))
