"""Write job.json: what was launched, with what, where. Secrets are masked before anything is written."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distdbg import __version__
from distdbg.collect.runs.launcher_process import describe_launcher
from distdbg.hidden_values import MOST_VALUES, entry
from distdbg.launch.io.disk import DiskWriter
from distdbg.launch.plan.job import Plan
from distdbg.masking import MASK, mask, mask_argv, sounds_secret
from distdbg.rundir import RunDir

JOB_SCHEMA = "distdbg.job/1"


def job_record(run: RunDir, name: str, plan: Plan) -> dict[str, Any]:
    """What is known before the start; `complete_later` adds what takes time to find out."""
    return {
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


def hidden_values(environment: Mapping[str, str], argv: Sequence[str]) -> list[dict[str, Any]]:
    """One entry for each secret value of the environment and the command line. A path is where a secret is kept."""
    values = {value for name, value in environment.items() if sounds_secret(name) and mask(name, value) == MASK}
    for word, shown in zip(argv, mask_argv(argv), strict=True):
        if shown.endswith(MASK):
            values.add(word.removeprefix(shown.removesuffix(MASK)))
    salt = os.urandom(16)
    entries = (entry(value, salt) for value in sorted(values) if not os.path.exists(value))  # noqa: PTH110 -- it raises for no value
    return [one for one in entries if one is not None][:MOST_VALUES]


def complete_later(run: RunDir, record: dict[str, Any], script: str | None, disk: DiskWriter) -> threading.Thread:
    """Versions and git state, found while the ranks start: nothing waits for them."""

    def find_out() -> None:
        from distdbg.collect.machine.versions import git_state, versions

        record["hidden_values"] = hidden_values(os.environ, sys.argv[1:])
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
