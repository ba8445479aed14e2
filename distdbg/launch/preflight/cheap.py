"""The half of a preflight that costs next to nothing: this machine alone, no process, no connection."""

from __future__ import annotations

import contextlib
import socket
import time

from distdbg.collect.preflight import disk, interfaces, limits
from distdbg.collect.preflight.looking import look_all
from distdbg.evidence.preflight import read_preflight
from distdbg.rundir import RunDir, write_json

#: What takes longer is a file system that does not answer: it is told as unknown, and nobody waits.
_WITHIN_S = 0.25


def cheap_preflight(run: RunDir, *, within: float = _WITHIN_S) -> list[str]:
    """Looks at disks, limits and interfaces here, writes preflight.json, and gives a sentence for each error.

    Never raises, never refuses: a job that starts anyway is the user's to start.
    """
    from distdbg.checks import disk_low, interface_wrong
    from distdbg.evidence.run import RunEvidence

    host = socket.gethostname()
    begun = time.time()
    looks = {"disk": lambda: disk.look(run.path), "limits": limits.look, "interfaces": interfaces.look}
    raw = {
        "schema": "distdbg.preflight/1",
        "on": "local",
        "began": begun,
        "master": host,
        "expected": 1,
        "all_reduce_skipped": "launch looks at what costs nothing",
        "nodes": {host: {"looked": look_all(looks, within), "because": ""}},
    }
    with contextlib.suppress(OSError):  # the findings say that the disk is full
        write_json(run.preflight, raw)
    evidence = RunEvidence({}, 0, (), (), preflight=read_preflight(raw))
    # These alone give errors from what was looked at; to load all checks would cost more than the looks.
    findings = [*disk_low.check(evidence), *interface_wrong.check(evidence)]
    return [f"{finding.summary} [{finding.id}]" for finding in findings if finding.severity == "error"]
