"""Compare the clocks of a job's hosts, by events that the logs of two of them have in common.

A step of training ends on all hosts within one step of each other, and NCCL completes a communicator on all its ranks
at once. Where two hosts logged enough of these, the median of the differences is the offset of their clocks, and the
largest deviation from it says how far that can be trusted. Time zones that a log does not write are offsets, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from statistics import median

from distdbg.evidence.logs.sources import ParsedLine
from distdbg.evidence.run import HostClock

_STEP = re.compile(r"(?i)\b(?:global[_ ])?(?:step|iteration|iter)\b[ =:\[\]'\"/]{0,8}(\d{1,12})\b")
_COMPLETE = re.compile(r"\bcommId (0x[0-9a-f]{1,16})\b.{0,200}Init COMPLETE")
#: Fewer common steps may be lines of something else that counts. A communicator's id is no accident.
_LEAST_STEPS = 3
#: Seconds. Differences that vary by more are not those of two clocks: the hosts did not step together.
_MOST_SPREAD = 30.0

#: What happened, in the words of the log, and when: in epoch seconds of the host's own clock.
Events = Mapping[str, float]


def events_of(lines: Iterable[tuple[ParsedLine, float]]) -> dict[str, float]:
    """The first time of each event in the lines of one host."""
    found: dict[str, float] = {}
    for line, t in lines:
        if step := _STEP.search(line.text):
            found.setdefault(f"step {int(step[1])}", t)
        elif complete := _COMPLETE.search(line.text):
            found.setdefault(f"communicator {complete[1]}", t)
    return found


def compare(hosts: Mapping[str, Events]) -> tuple[HostClock, ...]:
    """The clock of each host against that of the host with the most events, which comes first; of one host nothing."""
    if len(hosts) < 2:
        return ()
    reference = max(sorted(hosts), key=lambda host: len(hosts[host]))
    others = (_against(host, hosts[host], hosts[reference]) for host in sorted(hosts) if host != reference)
    return (HostClock(reference, 0.0, 0.0, len(hosts[reference])), *others)


def _against(host: str, its: Events, reference: Events) -> HostClock:
    common = its.keys() & reference.keys()
    steps = sum(event.startswith("step ") for event in common)
    if not common or (steps == len(common) and steps < _LEAST_STEPS):
        return HostClock(host, None, None, len(common))
    ahead = sorted(its[event] - reference[event] for event in common)
    middle = median(ahead)
    spread = max(middle - ahead[0], ahead[-1] - middle)
    known = spread <= _MOST_SPREAD
    return HostClock(host, middle if known else None, spread if known else None, len(common))
