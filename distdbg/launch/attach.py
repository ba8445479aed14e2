"""Follow an existing run: a batch job, or a run that another terminal of this machine launched."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from distdbg.collect.files.bounded_read import read_whole
from distdbg.collect.runs.run_status import MOST_REPORT, run_status
from distdbg.errors import EXIT_LOST, NothingToAnalyse
from distdbg.evidence import jsonl
from distdbg.launch.backends import submitted_job
from distdbg.launch.io.control import ask_to_end
from distdbg.launch.live.follow import Following, Job, JobStanding
from distdbg.model import unfold_ranks
from distdbg.rundir import RunDir

if TYPE_CHECKING:
    from distdbg.launch.live.console import Show


def attach(run: RunDir, show_ranks: str | None = None) -> int:
    """Follow to the end; the job's exit code. `show_ranks` None: as it was launched. Raises NothingToAnalyse."""
    status = run_status(run)
    if status.live is False:
        sys.stderr.write(read_whole(run.report_text, MOST_REPORT)[0] or "")
        ended = "" if status.exit_code is None else f", exit code {status.exit_code}"
        sys.stderr.write(f"distdbg: {run.id} has ended: {status.outcome}{ended}\n")
        return EXIT_LOST if status.exit_code is None else status.exit_code
    submitted = submitted_job(run)
    if submitted is None and status.live is None:
        raise NothingToAnalyse(f"{run.id}: {status.why}", f"`distdbg logs -f {run.id}` shows what its ranks print.")
    job: Job = _LocalRun(run) if submitted is None else submitted.follow()
    shown = show_ranks if show_ranks is not None else ("0" if submitted is None else submitted.show_ranks)
    show: Show = shown if shown in ("all", "none") else unfold_ranks(shown)  # type: ignore[assignment]
    size = jsonl.world_size(jsonl.inner(run.read_job(), "topology")) or (submitted.world_size if submitted else None)
    return Following(run, job, show, world_size=size).until_end()


class _LocalRun:
    """Ends with its launcher. Its terminal may cancel it, and so may `distdbg cancel`; Ctrl-C here only leaves."""

    may_cancel = False

    def __init__(self, run: RunDir) -> None:
        self.name = run.id
        self._run = run

    def standing(self, *, finished: bool) -> JobStanding:
        return JobStanding(over=finished or run_status(self._run).live is False, code=EXIT_LOST)

    def cancel(self) -> None:
        ask_to_end(self._run)

    def close(self) -> None:
        pass
