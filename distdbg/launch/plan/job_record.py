"""Write job.json: what was launched, with what, where. Secrets are masked before anything is written."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from distdbg import __version__
from distdbg.collect.runs.known_secrets import known_secrets
from distdbg.collect.runs.launcher_process import describe_launcher
from distdbg.hidden_values import MAX_VALUES, HiddenValues, SecretValue, record_value
from distdbg.launch.io.disk import DiskWriter
from distdbg.launch.plan.job import Plan
from distdbg.masking import mask, mask_argv
from distdbg.rundir import RunDir

JOB_SCHEMA = "distdbg.job/1"


def job_record(run: RunDir, name: str, plan: Plan) -> dict[str, Any]:
    """What is known before the start; `complete_later` adds what takes time to find out."""
    record = {
        "schema": JOB_SCHEMA,
        "id": run.id,
        "name": name,
        "argv": mask_argv(["distdbg", *sys.argv[1:]]),
        "cwd": str(Path.cwd()),
        "started": time.time(),
        "launcher": describe_launcher(),
        "topology": plan.topology,
        "worker_side": plan.worker_side,
        "program": mask_argv(plan.program),
        "torchrun": [mask_argv(node.torchrun) for node in plan.nodes],
        "environment": [
            {"name": variable.name, "value": mask(variable.name, variable.value), "origin": variable.origin}
            for variable in plan.nodes[0].environment
        ],
        "notes": list(plan.notes),
        "versions": {"distdbg": __version__, "python": sys.version.split()[0]},
        "git": None,
    }
    return HiddenValues(known=known_secrets()).mask_all(record)


def hidden_values(secrets: Iterable[SecretValue]) -> list[dict[str, Any]]:
    """What the record keeps of the secrets: digests by which a report that is made elsewhere finds them."""
    values = list(secrets)
    salt = os.urandom(16)
    recorded = [record_value(secret, salt) for secret in values[:MAX_VALUES]]
    return recorded + [{"name": secret.name, "digests": []} for secret in values[MAX_VALUES:]]


def complete_later(run: RunDir, record: dict[str, Any], script: str | None, disk: DiskWriter) -> threading.Thread:
    """Versions and git state, found while the ranks start: nothing waits for them."""

    def find_out() -> None:
        from distdbg.collect.machine.versions import git_state, versions

        record["hidden_values"] = hidden_values(known_secrets())
        write_job(run, record, disk)  # the rest takes seconds, and without these no bundle is written
        record["versions"] |= versions()
        record["git"] = git_state(Path(script).parent if script else Path.cwd())
        write_job(run, record, disk)

    thread = threading.Thread(target=find_out, name="job.json", daemon=True)
    thread.start()
    return thread


def write_job(run: RunDir, record: dict[str, Any], disk: DiskWriter) -> None:
    import json

    text = json.dumps(record, indent=1, default=str) + "\n"
    disk.write_whole(run.job, text.encode("utf-8", "backslashreplace"))
