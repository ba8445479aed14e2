"""One rank at one moment, as its agent reports it once a second for the detection of stalls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from distdbg.protocol.page import PHASES

#: Variable of the launcher: `on` if the devices are simulated. A rank that waits for one takes no CPU time.
SIMULATED_DEVICES = "DISTDBG_SIMULATED_DEVICES"


class RankSample(NamedTuple):
    """A row of the event `signs`. `heard` is None where the rank has no heartbeat page.

    `moved` are the bytes that it and its children read and wrote; None for a rank that is not quiet, since its children
    were not sampled. With `moved`, `cpu_s` includes the children's time. `spins`: it waits for its accelerator in a
    loop, so CPU time says nothing. `completed`: how many collectives its device has completed in all groups; None for a
    rank that is not quiet, or whose recorder does not say. `child_s`: the seconds that its children, but its loader's
    workers, ran on a CPU or waited for one; 0 for a rank that is not quiet. `driver`: the rank of ours that has started
    this one, which is a launcher; it has no sample then, and all ranks that it has started come in one message.
    `asleep`: its main thread has been in one sleep since the sample before; False for a rank that is not quiet.
    """

    rank: int
    heard: int | None
    quiet_s: float
    phase: str
    step: int = 0
    calls: int = 0
    cpu_s: float = 0.0
    moved: int | None = None
    timeout_s: float | None = None
    spins: bool = False
    completed: int | None = None
    child_s: float = 0.0
    driver: int | None = None
    asleep: bool = False

    @property
    def key(self) -> tuple[int, int | None]:
        """(the rank of ours, the rank that it has started): the numbers of one job may be those of another."""
        return (self.rank, None) if self.driver is None else (self.driver, self.rank)

    def row(self) -> list[Any]:
        """Small: a launcher gets it from every node."""
        return [*self._replace(phase=PHASES.index(self.phase), spins=int(self.spins), asleep=int(self.asleep))]  # type: ignore[arg-type]


def read_samples(message: Mapping[str, Any]) -> list[RankSample]:
    """Parse an event `signs`. Raises ValueError, TypeError or IndexError for any other message."""
    found = []
    for row in message["ranks"]:
        rank, heard, quiet, phase, step, calls, cpu, moved, timeout, spins, completed, child, driver, asleep = row
        sample = (int(rank), heard, float(quiet), PHASES[phase], int(step), int(calls), float(cpu), moved, timeout)
        found.append(RankSample(*sample, bool(spins), completed, float(child), driver, bool(asleep)))
    return found
