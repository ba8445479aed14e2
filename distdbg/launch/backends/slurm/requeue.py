"""Requeue a job that was warned, at the end of its batch script, as often as the user allows.

    python <absolute>/distdbg/launch/backends/slurm/requeue.py RUN --most N --code CODE [--warned] [--exclude-culprit]

The next start joins the run directory, and counts its attempts on. A job that a person cancelled stays cancelled.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import argparse
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_end, read_whole
from distdbg.collect.runs.run_status import MOST_REPORT
from distdbg.errors import DistdbgError
from distdbg.evidence import jsonl
from distdbg.launch.backends.slurm import commands
from distdbg.launch.io.journal import note
from distdbg.plain_text import whole_number
from distdbg.protocol.launcher_events import Cancelled, Finished, Launched, Requeued
from distdbg.rundir import RunDir

#: Findings that are a machine's fault, and would not come back on another.
_OF_A_NODE = {"node-lost", "network-cut", "gpu-fault", "nic-fault"}
_WARNED, _PREEMPTED = "Slurm warned it of its end", "it made way for another job"
_BY_ANOTHER = "the job is back in the queue already, by Slurm or by a person"
_MOST_EVENTS = 1 << 20
_SAYS = re.compile(r"^[A-Za-z0-9._-]+$")


def decide(*, warned: str, restarts: int, most: int, cancelled: bool, culprits: Sequence[str]) -> tuple[bool, str]:
    """Whether the job is requeued, and the reason; no reason where nothing asks for a requeue.

    `warned` is Slurm's warning to the job, empty for none; `culprits` are nodes to be excluded.
    """
    if not warned and not culprits:
        return False, ""
    if cancelled:
        return False, "it was cancelled"
    if restarts >= most:
        return False, f"it was requeued {restarts} times, and --max-requeues is {most}"
    why = warned or f"the verdict names {', '.join(culprits)}"
    return True, why + (f", left out: {', '.join(culprits)}" if culprits else "")


def culprits(report: Mapping[str, Any], nodes: Sequence[str]) -> list[str]:
    """Nodes of the job that the root cause names, where it is a machine's fault."""
    first = next(iter(jsonl.dicts(report.get("findings"))), {})
    if first.get("id") not in _OF_A_NODE or first.get("confidence") == "possible":
        return []
    nodes_of_cause = first.get("nodes")
    named = {str(name).partition(".")[0] for name in nodes_of_cause} if isinstance(nodes_of_cause, list) else set()
    return [node for node in nodes if node.partition(".")[0] in named and _SAYS.match(node)]


def main() -> int:
    options = _options()
    run = RunDir(Path(options.run))
    bad = _culprits_of(run) if options.exclude_culprit and options.code else []
    job = int(os.environ["SLURM_JOB_ID"])
    restarts = whole_number(os.environ.get("SLURM_RESTART_COUNT", "")) or 0
    if options.code and commands.restarts(job) > restarts:
        note(run, Requeued(because=_BY_ANOTHER, without=list(bad)))
        _say(_BY_ANOTHER + (f", left out: {', '.join(bad)}" if bad else ""))
        _leave_out(job, bad)
        return 0
    wanted, why = decide(
        warned=_WARNED if options.warned else _PREEMPTED if options.code and commands.preempted(job) else "",
        restarts=restarts,
        most=options.most,
        cancelled=_cancelled(run),
        culprits=bad,
    )
    if wanted:
        _requeue(run, job, restarts, why, bad, code=options.code)
    elif why:
        _say(f"the job is not requeued: {why}")
    return 0


def _requeue(run: RunDir, job: int, restarts: int, why: str, bad: Sequence[str], *, code: int) -> None:
    """Slurm ends this script once it requeues the job, with SIGTERM first: what is left to do is done meanwhile."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(run, Requeued(because=why, without=list(bad)))  # before: who follows must not take the end for the end
    _say(f"the job goes back into the queue: {why}")
    try:
        commands.requeue(job)
    except DistdbgError as error:
        if commands.restarts(job) <= restarts:  # else Slurm has requeued it meanwhile
            note(run, Finished(exit_code=code, because=f"it could not be requeued: {error.message}"))
            _say(f"the job could not be requeued: {error.message}")
            return
    _leave_out(job, bad)


def _leave_out(job: int, bad: Sequence[str]) -> None:
    try:
        if bad:
            commands.exclude(job, ",".join(bad))
    except DistdbgError as error:
        _say(f"{', '.join(bad)} could not be left out, and the job may be given it again: {error.message}")


def _culprits_of(run: RunDir) -> list[str]:
    try:
        report = jsonl.whole(read_whole(run.report_json, MOST_REPORT)[0] or "") or {}
        return culprits(report, commands.node_names(os.environ.get("SLURM_JOB_NODELIST", "")))
    except DistdbgError:
        return []


def _cancelled(run: RunDir) -> bool:
    """Whether a person cancelled the run with `distdbg cancel`; the batch script's own signal does not count."""
    events = jsonl.objects(read_end(run.events, _MOST_EVENTS).text)[0]
    start = Launched.last_line(events) or 0
    cancelled = Cancelled.newest([pair for pair in events if pair[0] >= start])
    return cancelled is not None and (cancelled.by or "").startswith("cancelled by")


def _say(text: str) -> None:
    sys.stderr.write(f"distdbg: {text}\n")
    sys.stderr.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="distdbg requeue", allow_abbrev=False)
    parser.add_argument("run")
    parser.add_argument("--most", type=int, required=True, help="times that the job may be requeued")
    parser.add_argument("--code", type=int, required=True, help="the launch's exit code")
    parser.add_argument("--warned", action="store_true", help="Slurm's signal has come")
    parser.add_argument("--exclude-culprit", action="store_true", help="leave out the node that the verdict names")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
