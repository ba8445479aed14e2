"""What a launch looks at by itself: it writes what it saw, and says only what will go wrong."""

import json
import time

import pytest

from distdbg.collect.preflight import disk
from distdbg.launch.plan.quick_preflight import quick_preflight
from distdbg.rundir import create_run_dir


def test_a_healthy_machine_is_not_talked_about(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    run = create_run_dir("x", parent=tmp_path)
    assert quick_preflight(run, within=10) == []
    (node,) = json.loads(run.preflight.read_text())["nodes"].values()
    assert set(node["looked"]) == {"disk", "limits", "interfaces"}


def test_an_interface_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=nonesuch")
    (note,) = quick_preflight(create_run_dir("x", parent=tmp_path), within=10)
    assert note.startswith("NCCL_SOCKET_IFNAME==nonesuch fits no interface that is up on ")
    assert note.endswith(" [interface-wrong]")


def test_a_file_system_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "look", lambda _: time.sleep(5) or {})
    begun = time.monotonic()
    assert quick_preflight(create_run_dir("x", parent=tmp_path)) == []
    assert time.monotonic() - begun < 4


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_a_launch_says_it_and_goes_on(distdbg, tmp_path, wrong):
    (tmp_path / "hello.py").write_text("print('hello')\n")
    env = {"NCCL_SOCKET_IFNAME": "=nonesuch"} if wrong else {}
    done = distdbg("launch", "--nproc-per-node", "1", "hello.py", env=env)
    assert done.code == 0 and "hello" in done.out, done
    assert ("[interface-wrong]" in done.err) == wrong, done
    assert json.loads(done.run.preflight.read_text())["schema"] == "distdbg.preflight/1"
