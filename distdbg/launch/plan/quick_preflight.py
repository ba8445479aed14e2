"""Run the short preflight of every launch: each node alone, no process, no connection."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distdbg.collect.preflight.looking import look_all, looks
from distdbg.evidence.host.preflight import read_preflight
from distdbg.launch.plan.place import LOCAL
from distdbg.rundir import RunDir
from distdbg.whole_file import write_whole

#: What takes longer is a file system that does not answer: it is reported as unknown, and the launch goes on.
_WITHIN_S = 0.25


def quick_preflight(run: RunDir, *, within: float = _WITHIN_S) -> list[str]:
    """Looks at disks, limits and interfaces here; see `judged`."""
    return judged(run, LOCAL.on, {socket.gethostname(): look_all(looks(run.path), within)}, one_machine=True)


def judged(
    run: RunDir,
    on: str,
    looked: Mapping[str, Mapping[str, Any]],
    *,
    one_machine: bool = False,
    write: Callable[[Path, bytes], object] = write_whole,
) -> list[str]:
    """Writes preflight.json from what each host, the first node's first, has looked at; a sentence for each error.

    Never raises, never refuses: a job that starts anyway is the user's to start.
    """
    from distdbg.diagnosis.nodes.machines import disk_low
    from distdbg.diagnosis.nodes.network import interface_wrong
    from distdbg.evidence.run import RunEvidence

    raw = record_looks(run, on, looked, one_machine=one_machine, write=write)
    evidence = RunEvidence({}, 0, (), (), preflight=read_preflight(raw))
    # These alone give errors from what was looked at; to load all checks would cost more than the looks.
    findings = [*disk_low.run(evidence), *interface_wrong.run(evidence)]
    return [f"{finding.summary} [{finding.id}]" for finding in findings if finding.severity == "error"]


def record_looks(
    run: RunDir,
    on: str,
    looked: Mapping[str, Mapping[str, Any]],
    missing: Sequence[str] = (),
    *,
    one_machine: bool = False,
    write: Callable[[Path, bytes], object] = write_whole,
) -> dict[str, Any]:
    """Write preflight.json with `write`, and return its content. It is marked as incomplete if hosts are missing."""
    why = "it has not come up"
    raw = {
        "schema": "distdbg.preflight/1",
        "on": on,
        "one_machine": one_machine,
        "incomplete": why if missing else "",
        "began": time.time(),
        "master": next(iter(looked), ""),
        "expected": len(looked) + len(missing),
        "all_reduce_skipped": "launch looks at what costs nothing",
        "nodes": {host: {"looked": dict(found), "because": ""} for host, found in looked.items()}
        | {host: {"looked": {}, "because": why} for host in missing},
    }
    with contextlib.suppress(OSError):  # the findings say that the disk is full
        write(run.preflight, json.dumps(raw, indent=1, default=str).encode() + b"\n")
    return raw
