"""What a batch script calls at its end: a job that was warned goes back into the queue, as often as was asked.

    python -m distdbg.launch.backends.slurm.requeue RUN --most N --code CODE [--warned] [--exclude-culprit]

The next start joins the run directory, and counts its attempts on. A job that a person cancelled stays cancelled.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distdbg.errors import DistdbgError
from distdbg.launch.backends.slurm import commands
from distdbg.launch.io.journal import note
from distdbg.protocol.launcher_events import Finished, Requeued
from distdbg.rundir import RunDir

#: Findings that are a machine's fault, and would not come back on another.
_OF_A_NODE = {"node-lost", "network-cut", "gpu-fault", "nic-fault"}
_WARNED, _PREEMPTED = "Slurm warned it of its end", "it made way for another job"
_BY_ANOTHER = "the job is back in the queue already, by Slurm or by a person"
_SAYS = re.compile(r"^[A-Za-z0-9._-]+$")


def decide(*, warned: str, restarts: int, most: int, cancelled: bool, culprits: Sequence[str]) -> tuple[bool, str]:
    """Whether it is requeued, and why or why not; "" where nobody would ask.

    `warned` says what Slurm has told the job, empty for nothing; `culprits` are nodes to be left out.
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
    findings = report.get("findings")
    first = findings[0] if isinstance(findings, list) and findings and isinstance(findings[0], dict) else {}
    if first.get("id") not in _OF_A_NODE or first.get("confidence") == "possible":
        return []
    named = {str(name).partition(".")[0] for name in first.get("nodes") or ()}
    return [node for node in nodes if node.partition(".")[0] in named and _SAYS.match(node)]


def main() -> int:
    options = _options()
    run = RunDir(Path(options.run))
    bad = _culprits_of(run) if options.exclude_culprit and options.code else []
    job = int(os.environ["SLURM_JOB_ID"])
    restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if options.code and _queued_again(job, restarts):
        note(run, Requeued(because=_BY_ANOTHER, without=list(bad)))
        _say(_BY_ANOTHER + (f", left out: {', '.join(bad)}" if bad else ""))
        _leave_out(job, bad)
        return 0
    wanted, why = decide(
        warned=_WARNED if options.warned else _PREEMPTED if options.code and _preempted(job) else "",
        restarts=restarts,
        most=options.most,
        cancelled=_cancelled(run),
        culprits=bad,
    )
    if wanted:
        _requeue(run, job, restarts, why, bad)
    elif why:
        _say(f"the job is not requeued: {why}")
    return 0


def _requeue(run: RunDir, job: int, restarts: int, why: str, bad: Sequence[str]) -> None:
    """Slurm ends this script as soon as it has heard of it, gently first: what is left to do is done meanwhile."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(run, Requeued(because=why, without=list(bad)))  # before: who follows must not take the end for the end
    _say(f"the job goes back into the queue: {why}")
    try:
        commands.requeue(job)
    except DistdbgError as error:
        if _queued_again(job, restarts):  # meanwhile
            _leave_out(job, bad)
            return
        note(run, Finished(exit_code=int(_options().code), because=f"it could not be requeued: {error.message}"))
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
        report = json.loads(run.report_json.read_text(encoding="utf-8"))
        return culprits(report, commands.node_names(os.environ.get("SLURM_JOB_NODELIST", "")))
    except (OSError, ValueError, AttributeError, DistdbgError):
        return []


def _queued_again(job: int, restarts: int) -> bool:
    """Slurm does so by itself where it ends a job because one of its nodes failed."""
    try:
        return commands.restarts(job) > restarts
    except DistdbgError:
        return False


def _preempted(job: int) -> bool:
    """Without `preempt_send_user_signal` Slurm ends the job's steps by SIGTERM, and tells the batch script nothing."""
    try:
        return commands.preempted(job)
    except DistdbgError:
        return False


def _cancelled(run: RunDir) -> bool:
    """By a person: `distdbg cancel`, and not the signal that the batch script itself sends."""
    try:
        lines = run.events.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    newest = ""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") in ("launched", "cancelled"):
            newest = str(event.get("by", ""))
    return newest.startswith("cancelled by")


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
