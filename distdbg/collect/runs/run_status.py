"""Determine whether a run still runs, how it ended, and its size, from its directory and /proc."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_end, read_whole
from distdbg.collect.runs.launcher_process import find_launcher
from distdbg.evidence import jsonl
from distdbg.evidence.exit_status import exit_status
from distdbg.protocol.launcher_events import Cancelled, Finished, Launched, NotStarted, Requeued, Submitted
from distdbg.rundir import RunDir

_Event = tuple[int, dict[str, Any]]

_TAIL_BYTES = 1 << 20
#: Bytes of report.json, of which 16,384 ranks have 4 MiB, and of report.txt.
MOST_REPORT = 64 << 20


@dataclass(frozen=True)
class RunStatus:
    """One line of `distdbg runs`.

    `live` is None where it cannot be known from this machine; `why` says why then, and for an unknown outcome.
    `started` and `ended` are epoch seconds, `size` bytes (0 where it was not asked for).
    """

    run: RunDir
    live: bool | None
    outcome: str
    why: str = ""
    exit_code: int | None = None
    ranks: int = 0
    started: float | None = None
    ended: float | None = None
    size: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.run.id,
            "path": str(self.run.path),
            "outcome": self.outcome,
            "live": self.live,
            "why": self.why or None,
            "exit_code": self.exit_code,
            "ranks": self.ranks,
            "started": self.started,
            "ended": self.ended,
            "size_bytes": self.size,
        }


def run_status(run: RunDir, *, measure: bool = False) -> RunStatus:
    """Look once. Never raises for what a run directory lacks: a run that was cut short has a status too."""
    events = jsonl.objects(read_end(run.events, _TAIL_BYTES).text)[0]
    began = Launched.newest(events) or Submitted.newest(events)
    started = began.t if began is not None else None
    if started is None:
        with contextlib.suppress(ValueError):
            started = datetime.strptime(run.id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
    events = _of_last_start(events)
    finished = Finished.newest(events) or NotStarted.newest(events)
    attempts = run.attempts()
    live, why = (False, "") if finished else _lives(run)
    code = exit_status(finished.fields()) if isinstance(finished, Finished) else None
    outcome = "running" if live else _reported(run, events) or _recorded(finished, cancelled=Cancelled.is_in(events))
    if live is None and (Submitted.is_in(events[-1:]) or Requeued.is_in(events[-1:])):
        outcome = "submitted"
    if live is False and not finished:
        why = why or "its launcher is gone and wrote no end"
    return RunStatus(
        run=run,
        live=live,
        outcome=outcome,
        why=why,
        exit_code=code,
        ranks=len(attempts[-1].ranks()) if attempts else 0,
        started=started,
        ended=None if finished is None else finished.t,
        size=_size(run.path) if measure else 0,
    )


def _reported(run: RunDir, events: list[_Event]) -> str:
    """The outcome in report.json; empty if the run has gone on since: a later attempt, or a later event but the end,
    which the launcher records after the report."""
    report = jsonl.whole(read_whole(run.report_json, MOST_REPORT)[0] or "") or {}
    facts = report.get("run")
    if not isinstance(facts, dict) or facts.get("attempt") != run.next_attempt - 1:
        return ""
    before_end = [jsonl.number(event, "t") or 0.0 for _, event in events if event.get("event") != Finished.spec.name]
    return (
        jsonl.text(report, "outcome") if (jsonl.number(facts, "ended") or 0.0) >= max(before_end, default=0.0) else ""
    )


def _recorded(finished: Finished | NotStarted | None, *, cancelled: bool) -> str:
    """What the launcher's last event allows to say."""
    if finished is None:
        return "unknown"
    if cancelled:
        return "cancelled"
    return "succeeded" if isinstance(finished, Finished) and finished.exit_code == 0 else "failed"


def _of_last_start(events: list[_Event]) -> list[_Event]:
    """A run that was requeued has not ended, even if its previous start wrote an end."""
    starts = (Launched.last_line(events), Requeued.last_line(events))
    last = max((start for start in starts if start is not None), default=0)
    return [pair for pair in events if pair[0] >= last]


def _lives(run: RunDir) -> tuple[bool | None, str]:
    launcher, job = find_launcher(run.read_job()), run.slurm_job
    if launcher.alive is None and job is not None:
        return None, f"it is Slurm job {job}: `distdbg attach {run.id}` asks for its state"
    return launcher.alive, launcher.because


def _size(folder: Path) -> int:
    """Bytes in files below a folder; links are not followed, what cannot be read counts nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - a run can hold 100,000 files
    return total
