"""Dump the ranks of a Slurm job on this node: `hang-dump --slurm-job` starts it on each node through srun.

    srun --jobid J --overlap -N1 -n1 -w NODE python <absolute>/distdbg/launch/backends/slurm/node_dump.py REQUEST

REQUEST is JSON: {"job": "12", "node_rank": 0, "options": {…}}. Standard output is a stream of
launch/io/folder_stream.py: the folder of the dump, and a description of the job {"name", "argv", "cwd", "world_size",
"ranks", "doubles", "key", "others"}. The node and the requester need no shared file system. Imports the standard
library and psutil only.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import json
import os
import socket
import tempfile
from pathlib import Path

from distdbg.collect.machine.job_processes import find_jobs
from distdbg.errors import DistdbgError
from distdbg.launch.io.folder_stream import send_folder
from distdbg.launch.watch.requested_dump import DumpOptions, capture


def main() -> int:
    request = json.loads(sys.argv[1])
    # the environment of this process names the job, too, but this process is not a rank
    jobs = [job for job in find_jobs() if job.slurm_job == request["job"]]
    if not jobs:
        sys.stderr.write("no rank of the job runs here: no process with a rank's variables that runs Python\n")
        return 3
    job, others = jobs[0], jobs[1:]
    found = {"name": job.name, "argv": job.argv, "cwd": job.cwd, "world_size": job.world_size, "key": job.key,
             "ranks": [rank.rank for rank in job.ranks], "doubles": job.doubles,
             "others": [other.name for other in others]}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="distdbg-") as name:
        folder = Path(name)
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        options = DumpOptions(**request["options"])
        try:
            capture(folder, options, job.ranks, lambda _: None, node_rank=request["node_rank"], host=host)
        except DistdbgError as error:
            found["because"] = error.message
        send_folder(folder, found, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
