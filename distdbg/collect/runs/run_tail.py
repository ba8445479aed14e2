"""Follow the events and metrics of a run's nodes while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import size_of
from distdbg.evidence import jsonl
from distdbg.rundir import RunDir, open_regular

_AT_ONCE = 1 << 20
#: Of figures that came before the first look, so many bytes tell how it goes.
_NEWEST = 16 << 10


@dataclass
class FileTail:
    """Whole lines that come, as they come. The file need not exist yet, and is opened anew for each look (NFS)."""

    path: Path
    offset: int = 0

    def lines(self) -> list[bytes]:
        try:
            with open_regular(self.path) as file:
                file.seek(self.offset)
                data = file.read(_AT_ONCE)
        except OSError:
            return []
        whole, newline, rest = data.rpartition(b"\n")
        if not newline and len(rest) == _AT_ONCE:
            whole, newline = rest, b""  # a line without end
        self.offset += len(whole) + len(newline)
        return whole.split(b"\n") if whole or newline else []

    def rest(self) -> list[bytes]:
        """At the end: the line that has no newline, too."""
        lines = self.lines()
        with contextlib.suppress(OSError), open_regular(self.path) as file:
            file.seek(self.offset)
            lines += [last] if (last := file.read(_AT_ONCE)) else []
            self.offset += len(last)
        return lines

    def objects(self) -> Iterator[dict[str, Any]]:
        """A line that is none is passed over: what a live view shows is no evidence."""
        for line in self.lines():
            if (value := jsonl.whole(line.decode("utf-8", "replace"))) is not None:
                yield value


class RunTail:
    """Events of the newest attempt's nodes, all of them, and metrics from shortly before the first look on."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._tails: dict[Path, tuple[int, FileTail]] = {}

    def poll(self) -> list[tuple[int, dict[str, Any]]]:
        """(node rank, event) of what has come since, node by node."""
        attempts = self._run.attempts()
        for node in attempts[-1].nodes() if attempts else ():
            for path in (node.events, node.metrics):
                if path not in self._tails:
                    begin = max(0, size_of(path) - _NEWEST) if path == node.metrics else 0
                    self._tails[path] = node.node_rank, FileTail(path, begin)
        return [(node_rank, event) for node_rank, tail in self._tails.values() for event in tail.objects()]
