"""Another user of the machine can neither read nor redirect what distdbg writes. Needs root, to be that user."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from distdbg.errors import UsageError
from distdbg.launch.agent.node import make_node_dir, remove_node_dir
from distdbg.rundir import DUMPS_FOLDER, RUNS_FOLDER, create_run_dir, find_run_dir, make_dump_folder
from distdbg.worker.page import PageWriter

OTHER = 65534
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="not possible here: being a second user needs root")


def as_other(script: str, *arguments: str | Path) -> str:
    """What a Python script prints that another user runs: `done`, or the name of the error that stopped it."""
    become = f"import os, socket, sys\nos.setgroups([])\nos.setgid({OTHER})\nos.setuid({OTHER})\nos.chdir('/')\n"
    guarded = "try:\n" + "".join(f"    {line}\n" for line in script.splitlines())
    otherwise = "except OSError as error:\n    print(type(error).__name__)\nelse:\n    print('done')\n"
    command = [sys.executable, "-I", "-c", become + guarded + otherwise, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@pytest.fixture(params=[0o1777, 0o777], ids=["sticky", "open"])
def shared(request, tmp_path, monkeypatch):
    """A working directory that every user may write to, such as /scratch; the other user can reach it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(stat.S_IMODE(parent.stat().st_mode) | 0o011)
    folder.chmod(request.param)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def test_a_folder_of_another_users_is_left_alone_and_a_planted_link_is_not_followed(shared, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("root's own")
    plant = "os.mkdir(sys.argv[1])\nos.symlink(sys.argv[2], sys.argv[1] + '/.gitignore')\nos.chmod(sys.argv[1], 0o777)"
    assert as_other(plant, shared / RUNS_FOLDER, precious) == "done"
    said: list[str] = []
    run = create_run_dir("train", say=said.append)
    assert precious.read_text() == "root's own"
    assert run.path.is_relative_to(tmp_path / "state") and not list((shared / RUNS_FOLDER).glob("2*"))
    assert len(said) == 1 and str(run.path) in said[0], said
    assert find_run_dir(None).path == run.path and find_run_dir(run.id).path == run.path
    assert {stat.S_IMODE(p.stat().st_mode) for p in run.path.parents[:3]} == {0o700}


def test_so_is_a_folder_of_dumps(shared, tmp_path):
    assert as_other("os.mkdir(sys.argv[1])\nos.chmod(sys.argv[1], 0o777)", shared / DUMPS_FOLDER) == "done"
    assert make_dump_folder("job", DUMPS_FOLDER).is_relative_to(tmp_path / "state")


def test_a_link_in_place_of_the_folder_is_not_followed(shared, tmp_path):
    assert as_other("os.symlink(sys.argv[2], sys.argv[1])", shared / RUNS_FOLDER, tmp_path) == "done"
    assert create_run_dir("train").path.is_relative_to(tmp_path / "state")


def test_where_the_state_folder_is_the_other_users_too_the_run_is_refused(shared, monkeypatch):
    make = "for name in sys.argv[1:]:\n    os.mkdir(name)\n    os.chmod(name, 0o777)"
    assert as_other(make, shared / RUNS_FOLDER, shared / "state") == "done"
    key = "for name in ('distdbg', 'distdbg/' + sys.argv[2], 'distdbg/' + sys.argv[2] + '/' + sys.argv[3]):\n"
    from distdbg.rundir import folder_for

    monkeypatch.setenv("XDG_STATE_HOME", str(shared / "state"))
    name = folder_for(RUNS_FOLDER)[0].name
    assert as_other(key + "    os.mkdir(sys.argv[1] + '/' + name)", shared / "state", RUNS_FOLDER, name) == "done"
    with pytest.raises(UsageError):
        create_run_dir("train")


def test_a_run_is_neither_read_nor_written_by_another(shared):
    run = create_run_dir("train")
    for folder, _, files in os.walk(run.path):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder
        assert all(stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) == 0o600 for name in files), files
    attacks = {
        "read": "os.listdir(sys.argv[1])",
        "request": "open(sys.argv[1] + '/control', 'a').close()",
        "plant": "open(sys.argv[1] + '/job.json', 'w').close()",
        "link": "os.symlink('/etc/passwd', sys.argv[1] + '/job.json')",
        "hard link": "os.link(sys.argv[1] + '/control', sys.argv[1] + '/../mine')",
        "rename": "os.rename(sys.argv[1], sys.argv[1] + '.mine')",
        "latest": "os.remove(sys.argv[1] + '/../latest')",
    }
    said = {name: as_other(script, run.path) for name, script in attacks.items()}
    assert said == dict.fromkeys(attacks, "PermissionError"), said


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_a_node_local_folder_is_this_users_alone(mode, monkeypatch):
    parent = Path(tempfile.mkdtemp(prefix="ddu", dir="/tmp"))  # a socket's path is short
    parent.chmod(mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(parent))
    folder, refused = make_node_dir("20260101T000000Z-train-abcd", 0, 1 << 16)
    try:
        assert (folder.parent == parent) is (mode == 0o1777), refused
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        PageWriter(str(folder / "00000.page"), 0, 1)
        assert stat.S_IMODE((folder / "00000.page").stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "agent.sock"))
            server.listen()
            connect = "socket.socket(socket.AF_UNIX).connect(sys.argv[1] + '/agent.sock')"
            assert as_other(connect, folder) == "PermissionError"
            assert as_other("open(sys.argv[1] + '/00000.page').read()", folder) == "PermissionError"
            assert as_other("os.rename(sys.argv[1], sys.argv[1] + '.mine')", folder) == "PermissionError"
    finally:
        remove_node_dir(folder)
        shutil.rmtree(parent)


def test_a_runtime_folder_of_another_users_is_passed_over(shared, monkeypatch):
    assert as_other("os.mkdir(sys.argv[1])\nos.chmod(sys.argv[1], 0o777)", shared / "runtime") == "done"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared / "runtime"))
    folder, _ = make_node_dir("20260101T000000Z-train-abcd", 0, 1 << 16)
    remove_node_dir(folder)
    assert folder.parent != shared / "runtime"


def test_root_writes_no_file_into_another_users_run(tmp_path, monkeypatch):
    """Its owner could not replace it, and so would have no report of their own."""
    from distdbg.collect.runs.report_files import write_report
    from distdbg.collect.runs.run_profiles import ProfileSet
    from distdbg.errors import Refused
    from distdbg.evidence.run import RunEvidence
    from distdbg.model import Report

    monkeypatch.chdir(tmp_path)
    run = create_run_dir("train")
    attempt = run.attempt(1)
    attempt.folder.mkdir(parents=True)
    assert not run.is_foreign
    for path in (run.path, *run.path.rglob("*")):
        os.lchown(path, OTHER, OTHER)
    before = set(run.path.rglob("*"))
    with pytest.raises(PermissionError):
        write_report(run, Report(None, ()), RunEvidence({}, 1, (), ()))
    with pytest.raises(Refused):
        ProfileSet(attempt, 1, 2, {}).merge(lambda _: None)
    assert run.is_foreign and set(run.path.rglob("*")) == before
