"""A node's part of a dump that comes through srun: whole, and cut although srun ends with exit code 0."""

import os
import subprocess
import sys

import pytest

from distdbg.collect.runs.dump_files import load_dump
from distdbg.launch.backends.slurm.dump import SlurmTarget
from distdbg.launch.watch.requested_dump import DumpOptions

#: It runs what follows its own options, and lets through so many bytes.
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
"$@" | head -c %d
"""


@pytest.fixture
def dump(tmp_path, monkeypatch):
    """`dump(most)` gives what two ranks of job 77 left, and what is unknown, if srun passes on `most` bytes."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code = "print(flush=True); import time; time.sleep(100)"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": "2", "SLURM_JOB_ID": "77",
                 "MASTER_ADDR": "here", "MASTER_PORT": "1"},
            stdout=subprocess.PIPE,
        )
        for n in range(2)
    ]  # fmt: skip
    for process in started:
        process.stdout.readline()

    def take(most):
        (tmp_path / "srun").write_text(SRUN % most)
        (tmp_path / "srun").chmod(0o755)
        folder = tmp_path / f"dump-{most}"
        folder.mkdir()
        options = DumpOptions(looks=1, interval=0, native=0)
        unknown = SlurmTarget(77, ("node1",)).dump(folder, options, lambda _: None)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return load_dump(folder, "dump")[0], unknown, size

    yield take
    for process in started:
        process.kill()
        process.communicate()


def test_cut_evidence_is_told(dump):
    whole, unknown, size = dump(1 << 30)
    assert sorted(whole.ranks) == [0, 1] and unknown == []
    cut, unknown, smaller = dump(6144)
    assert smaller < size
    (told,) = unknown
    assert told.decisive and told.what == "a part of the evidence of node node1" and "was cut" in told.because
    assert {rank for rank in range(2) if rank in cut.ranks or "cut" in cut.missing[rank]} == {0, 1}
