"""Detect stragglers while a job runs, and request stack samples of them from their agents.

Each agent reports every few seconds how its ranks' time divides over their phases (agent/timing.py). The comparison
needs all nodes: the ranks that wait may be on another node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from distdbg.protocol.launcher_events import StragglerWatchError
from distdbg.protocol.requests import SampleStraggler

if TYPE_CHECKING:
    from distdbg.launch.backends.nodes import Nodes
    from distdbg.launch.io.journal import Journal

#: In one attempt: after that it is a job of many different troubles, which samples will not explain.
_MOST_LOOKS = 8


class StragglerWatch:
    """Each rank and phase is asked for once an attempt."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._broken = False
        self._begin(0)

    def guard(self, nodes: Nodes) -> None:
        """Nodes that are about to start: the first ones, or those of a restart."""
        self._nodes = nodes

    def _begin(self, attempt: int) -> None:
        self._attempt = attempt
        self._phases: dict[int, Mapping[str, int]] = {}
        self._step_ms: dict[int, float] = {}
        self._asked: set[tuple[int, str]] = set()

    def hear(self, event: Mapping[str, Any], ranks: Iterable[int]) -> None:
        """Every event of every agent; `ranks` are all of the attempt."""
        if self._broken:
            return
        try:
            self._hear(event, ranks)
        except Exception as error:  # of ours: it costs these samples, and never the job
            self._broken = True
            self._journal.note(StragglerWatchError(error=repr(error), traceback="".join(format_exception(error))))

    def _hear(self, event: Mapping[str, Any], ranks: Iterable[int]) -> None:
        match event.get("event"):
            case "attempt-started" if int(event.get("attempt", 1)) > self._attempt:
                self._begin(int(event.get("attempt", 1)))
            case "phases":
                self._phases |= {int(rank): told for rank, told in event["ranks"].items()}
                self._step_ms |= {int(rank): ms for rank, ms in (event.get("step_ms") or {}).items() if ms}
                if self._phases.keys() >= set(ranks):
                    self._judge()

    def _judge(self) -> None:
        from distdbg.diagnosis.timeline.arrivals import (
            longer_phases,  # not before the first ranks run: a start should be quick
        )

        for late in longer_phases(self._phases):
            step_ms = self._step_ms.get(late.rank)
            if step_ms is None or (late.rank, late.phase) in self._asked or len(self._asked) >= _MOST_LOOKS:
                continue
            self._asked.add((late.rank, late.phase))
            usual_ms = round(late.usual * step_ms, 3)
            self._nodes.tell_all(SampleStraggler(rank=late.rank, phase=late.phase, usual_ms=usual_ms))
