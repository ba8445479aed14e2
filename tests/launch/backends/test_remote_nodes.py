"""Agents that do not come up, behind a client that stays connected: who is missing is said, and nothing stays."""

import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from distdbg.launch.backends.remote_nodes import RemoteNodes
from distdbg.launch.io.disk import DiskWriter
from distdbg.launch.io.journal import Journal
from distdbg.rundir import RUNS_FOLDER, RunDir, list_runs
from tests.launch.file_systems import freezable_file_system

#: Knows one host, on which it runs the command; another never starts, like a host whose Python loads for ever.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
case "$2" in
  here) exec sh -c "$3";;
  *) echo "a slow file system" >&2; exec sleep 1000;;
esac
"""
LAUNCH = (
    "from distdbg.launch.backends import remote_nodes; remote_nodes._ALL_HERE_WITHIN_S = 10; "
    "from distdbg.cli import main; main()"
)


@pytest.mark.slow
def test_agents_that_do_not_come_up_are_named(tmp_path, monkeypatch):
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "train.py").write_text("raise SystemExit('ran')\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = ["launch", "--hosts", "here,there,nowhere", "--nproc-per-node", "1", "train.py"]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "there, nowhere did not come up within 10 s: a slow file system\n" in done.stderr
    (run,) = list_runs(tmp_path / RUNS_FOLDER)
    looked = json.loads(run.preflight.read_text())
    assert looked["incomplete"] and looked["expected"] == 3
    assert {host: bool(node["looked"]) for host, node in looked["nodes"].items() if node["because"]} == {
        "there": False, "nowhere": False,
    }  # fmt: skip
    assert [set(node["looked"]) for node in looked["nodes"].values() if not node["because"]] == [
        {"disk", "limits", "interfaces"}
    ]
    assert '"not-started"' in run.events.read_text() and not list(run.path.glob("attempts/1/ranks/*"))


class Remote(RemoteNodes):
    def _kill(self):
        pass

    _end_orphans = tell_all = _kill


@pytest.mark.slow
def test_frozen_disk_does_not_block_the_loop_when_preflight_is_recorded(tmp_path):
    with freezable_file_system(tmp_path / "disk") as disk:
        run, writer = RunDir(disk.path / "run"), DiskWriter()
        run.path.mkdir()
        plan = SimpleNamespace(place=SimpleNamespace(on="ssh"))
        nodes = Remote(SimpleNamespace(run=run, plan=plan, journal=Journal(run, writer)), [], {})
        disk.freeze()
        loop = threading.Thread(target=nodes._record_looks, daemon=True)
        loop.start()
        loop.join(5)
        was_blocked = loop.is_alive()
        disk.thaw()
        assert not was_blocked
        assert writer.close(30) and json.loads(run.preflight.read_text())["on"] == "ssh"
