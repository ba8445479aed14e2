"""Read the logs of one job: their kept lines, the ranks of their local ranks, and the clocks of their hosts."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from statistics import median

from distdbg.evidence.logs.assembly import Assembly, JobLogs, LogFile
from distdbg.evidence.logs.candidates import LONGEST_LINE, Candidates, is_progress
from distdbg.evidence.logs.events import LIVED_LONG
from distdbg.evidence.logs.exits import exits_in
from distdbg.evidence.logs.local_ranks import NodeRanks, node_ranks, one_node
from distdbg.evidence.logs.rank_names import NameFacts
from distdbg.evidence.logs.sources import ParsedLine, parsed_lines, sources_of
from distdbg.evidence.run import HostClock
from distdbg.model import Unknown, grouped
from distdbg.wording import counted


class LogReader:
    """Takes the kept lines of each log; `job` is what they say together."""

    def __init__(self) -> None:
        self._files: list[LogFile] = []
        self._lines = self._bytes = 0
        self._forms: set[str] = set()
        self._unknown: list[Unknown] = []

    def add(self, path: str, kept: Candidates, name: NameFacts, forms: Iterable[str] = ()) -> None:
        lines = parsed_lines(kept.kept(), name.local_rank)
        file = LogFile(path, lines, name, exits_in(lines))
        file.times = [(line.number, line.facts.t) for line in lines if line.facts.t is not None]
        steps = [line.number for line in lines if is_progress(line.text)] if file.exits else []
        # So many steps of training follow a line that the job was started again, or did not mind.
        file.exits = [one for one in file.exits if len(steps) - bisect_right(steps, one.line) < LIVED_LONG]
        self._files.append(file)
        self._lines += kept.lines
        self._bytes += kept.size
        self._forms |= set(forms)
        if kept.dropped:
            more = f"{counted(kept.dropped, 'more line')} of {path} about an error"
            self._unknown.append(Unknown(more, "of lines that are alike the first are read"))
        if kept.cut_lines:
            ends = f"the end of {counted(kept.cut_lines, 'line')} of {path}"
            self._unknown.append(Unknown(ends, f"longer than {LONGEST_LINE >> 10} KiB"))

    @property
    def empty(self) -> bool:
        return not self._files

    @property
    def lists_workers(self) -> bool:
        """Whether a driver of Ray Train wrote one of them."""
        return any(file.ray_workers for file in self._files)

    def job(self) -> JobLogs:
        self._place_local_ranks()
        for file in self._files:
            file.sources = sources_of(file.lines, file.name, file.node.rank)
        clocks = self._compare_clocks()
        return Assembly(self._files, clocks).job(self._lines, self._bytes, self._forms, self._unknown)

    def _compare_clocks(self) -> tuple[HostClock, ...]:
        lines: dict[str, list[tuple[ParsedLine, float]]] = {}
        for file in self._files:
            for line in file.lines:
                host = line.facts.host or line.facts.pod or file.name.host
                if host and line.facts.t is not None:
                    lines.setdefault(host, []).append((line, line.facts.t))
        clocks = _compare_hosts({host: _events_of(its) for host, its in lines.items()})
        ahead = {clock.host: clock.ahead for clock in clocks if clock.ahead}
        for file in self._files:
            file.ahead = ahead
        return clocks

    def _place_local_ranks(self) -> None:
        """Which ranks the local ranks of each launcher's logs are."""
        one = one_node(line for file in self._files for line in file.lines)
        launchers = grouped((file.name.launcher, file) for file in self._files)
        for files in launchers.values():
            lines = [line for file in files for line in file.lines]
            exits = [end for file in files for end in file.exits]
            mixed = one is False and len(launchers) == 1 and files[0].name.local_rank is None
            found = node_ranks(lines, exits, may_be_several=mixed)
            for file in files:
                file.node = NodeRanks(alone=0) if one else found


_STEP = re.compile(r"(?i)\b(?:global[_ ])?(?:step|iteration|iter)\b[ =:\[\]'\"/]{0,8}(\d{1,12})\b")
_COMPLETE = re.compile(r"\bcommId (0x[0-9a-f]{1,16})\b.{0,200}Init COMPLETE")
#: Fewer common steps may be lines of something else that counts. A communicator's id is no accident.
_LEAST_STEPS = 3
#: Seconds. Differences that vary by more are not those of two clocks: the hosts did not step together.
_MOST_SPREAD = 30.0

#: What happened, in the words of the log, and when: in epoch seconds of the host's own clock.
Events = Mapping[str, float]


def _events_of(lines: Iterable[tuple[ParsedLine, float]]) -> dict[str, float]:
    """The first time of each event in the lines of one host."""
    found: dict[str, float] = {}
    for line, t in lines:
        if step := _STEP.search(line.text):
            found.setdefault(f"step {int(step[1])}", t)
        elif complete := _COMPLETE.search(line.text):
            found.setdefault(f"communicator {complete[1]}", t)
    return found


def _compare_hosts(hosts: Mapping[str, Events]) -> tuple[HostClock, ...]:
    """Compare the clock of each host with that of the host with the most events, which comes first. Empty for one host.

    A step of training ends on all hosts within one step of each other, and NCCL completes a communicator on all its
    ranks at once. If two hosts logged enough of these, the median of the differences is the offset of their clocks, and
    the largest deviation from it is its error. Time zones that a log does not write are offsets, too.
    """
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
