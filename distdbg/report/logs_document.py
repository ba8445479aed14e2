"""Build the document of foreign logs: what was read, and the lines that support the answer, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from distdbg.evidence.logs.prefixes import NO_YEAR
from distdbg.evidence.run import DecisiveLine, HostClock, LogsRead
from distdbg.hidden_values import HiddenValues
from distdbg.model import fold_ranks
from distdbg.plain_text import clean
from distdbg.report.document import Column, Paragraph, Section, Table, pairs
from distdbg.wording import counted, duration

_MOST_NAMES, _MOST_LINES = 12, 400


def logs_sections(read: LogsRead, hidden: HiddenValues) -> Iterator[Section]:
    """A table for every form; the timeline for the page alone."""
    yield Section("What was read", (pairs(list(_rows(read))),))
    if read.decisive:
        yield Section(
            "Decisive lines of all hosts",
            (Paragraph(_clocks(read), "dim"), _timeline(hidden.mask_all(read.decisive[:_MOST_LINES]))),
            page_only=True,
        )


def logs_json(read: LogsRead) -> dict[str, object]:
    """The key `logs` of the JSON form; times in epoch seconds."""
    return {
        "files": read.files,
        "lines": read.lines,
        "bytes": read.size,
        "first": read.first,
        "last": read.last,
        "ranks": list(read.ranks),
        "hosts": list(read.hosts),
        "launchers": list(read.launchers),
        "formats": list(read.forms),
        "unattributed": read.unattributed,
        "clocks": [{"host": c.host, "ahead": c.ahead, "within": c.within, "events": c.events} for c in read.clocks],
    }


def _rows(read: LogsRead) -> Iterator[tuple[str, str]]:
    yield "lines", f"{counted(read.lines, 'line')} of {counted(read.files, 'file')}, {read.size:,} bytes"
    if read.first is not None and read.last is not None:
        yield "time", f"{_time(read.first)} to {_time(read.last)} ({duration(read.last - read.first)})"
    if read.clocks:
        yield "clocks", clocks_in_words(read.clocks)
    yield "ranks", fold_ranks(read.ranks) if read.ranks else "no line says a rank"
    for name, values in (("hosts", read.hosts), ("launchers", read.launchers), ("packed as", read.forms)):
        if values:
            more = f" and {len(values) - _MOST_NAMES} more" if len(values) > _MOST_NAMES else ""
            yield name, f"{', '.join(values[:_MOST_NAMES])}{more}"
    if read.unattributed:
        yield "not attributed", f"{counted(read.unattributed, 'error')} of processes whose rank is not known"


def _time(t: float) -> str:
    """The time of a line, without the year if the line has none, as in syslog."""
    moment = datetime.fromtimestamp(t, timezone.utc)
    return moment.strftime("%m-%d %H:%M:%S" if moment.year == NO_YEAR else "%Y-%m-%d %H:%M:%S")


def clocks_in_words(clocks: Sequence[HostClock]) -> str:
    """`node2 42.0 s ahead of node1 (12 common events); node3 not compared`."""
    reference, *others = clocks
    return "; ".join(_clock(other, reference.host) for other in others[:_MOST_NAMES])


def _clock(clock: HostClock, reference: str) -> str:
    common = f"({counted(clock.events, 'common event')})"
    if clock.ahead is None:
        return f"{clean(clock.host)} is not compared with {clean(reference)} {common}"
    side = "ahead of" if clock.ahead >= 0 else "behind"
    return f"{clean(clock.host)} is {abs(clock.ahead):,.1f} s {side} {clean(reference)} {common}"


def _clocks(read: LogsRead) -> str:
    if len({line.host for line in read.decisive}) < 2:
        return ""
    words = "Clocks of hosts differ: the order of lines of two hosts is only as good as these."
    shifted = [clock for clock in read.clocks if clock.ahead]
    return f"{words} Times are those of {clean(read.clocks[0].host)}." if shifted else words


def _timeline(lines: Sequence[DecisiveLine]) -> Table:
    columns = (
        Column("time"),
        Column("host"),
        Column("rank", number=True),
        Column("line", code=True),
        Column("text", code=True),
    )
    return Table(columns, tuple(map(_row, lines)))


def _row(line: DecisiveLine) -> tuple[str, ...]:
    rank = "unknown" if line.rank is None else str(line.rank)
    time = _time(line.t) if line.t is not None else ""
    return time, clean(line.host), rank, clean(f"{line.path}:{line.line}"), clean(line.text[:240])
