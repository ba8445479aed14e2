"""Sentences for the terminal about single events: a stopped rank, stacks that py-spy may not sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STOPPED = {
    "rank-stopped": "rank {rank} was stopped (SIGSTOP, Ctrl-Z): the others will wait for it until it gets SIGCONT",
    "rank-continued": "rank {rank} goes on",
}
_CLOSED = "py-spy may not sample the ranks, so a rank that hangs must write its stack itself: "


class Remarks:
    """`on` takes every event of every agent."""

    def __init__(self) -> None:
        self._refusals: set[str] = set()

    def on(self, event: Mapping[str, Any]) -> str:
        """A sentence, or nothing. One that is true of all nodes is shown once."""
        name, because = str(event.get("event")), str(event.get("because") or "")
        if name in _STOPPED:
            return _STOPPED[name].format(rank=event.get("rank"))
        if name == "rungs" and because and because not in self._refusals:
            self._refusals.add(because)
            return _CLOSED + because
        return ""
