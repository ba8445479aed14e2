"""Read the logs of one job: their kept lines, the ranks of their local ranks, and the clocks of their hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distdbg.evidence.logs.assembly import Assembly, JobLogs, LogFile
from distdbg.evidence.logs.candidates import LONGEST_LINE, Candidates, is_progress
from distdbg.evidence.logs.clocks import compare, events_of
from distdbg.evidence.logs.events import LIVED_LONG
from distdbg.evidence.logs.exits import exits_in
from distdbg.evidence.logs.local_ranks import NodeRanks, node_ranks, one_node
from distdbg.evidence.logs.rank_names import NameFacts
from distdbg.evidence.logs.sources import ParsedLine, parsed_lines, sources_of
from distdbg.evidence.run import HostClock
from distdbg.model import Unknown, grouped


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
        file.exits = [one for one in file.exits if not _lived_on(lines, one.line)]
        self._files.append(file)
        self._lines += kept.lines
        self._bytes += kept.size
        self._forms |= set(forms)
        if kept.dropped:
            more = f"{kept.dropped:,} more line{'s' if kept.dropped > 1 else ''} of {path} about an error"
            self._unknown.append(Unknown(more, "of lines that are alike the first are read"))
        if kept.cut_lines:
            ends = f"the end of {kept.cut_lines:,} line{'s' if kept.cut_lines > 1 else ''} of {path}"
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
        clocks = compare({host: events_of(its) for host, its in lines.items()})
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


def _lived_on(lines: Sequence[ParsedLine], at: int) -> bool:
    """So many steps of training follow a line that the job was started again, or did not mind."""
    return sum(1 for line in lines if line.number > at and is_progress(line.text)) >= LIVED_LONG
