"""The bed itself: apart where hosts are apart, breakable, and gone without a trace however its maker ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.host import members
from tests.cluster.slurm import Slurm

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bed")]


def reaches(bed, name, address, within=1):
    return (
        bed.run(name, "sh", "-c", f"exec 3<>/dev/null; timeout {within} bash -c '</dev/tcp/{address}/7777'").returncode
        == 0
    )


@pytest.fixture
def listening(bed):
    """node2 takes connections on port 7777."""
    code = "import socket; s = socket.create_server(('', 7777)); print('up', flush=True)\nwhile True: s.accept()"
    server = bed.popen("node2", sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"up\n"
    yield bed["node2"].address
    for pid in bed["node2"].processes():
        os.kill(pid, signal.SIGKILL)
    server.wait()
    server.stdout.close()


def test_hosts_are_apart(bed):
    for name in ("node1", "node2"):
        assert bed.run(name, "hostname").stdout == f"{name}\n"
        assert bed.run(name, "cat", "/etc/hostname").stdout == f"{name}\n"
        bed.run(name, "sh", "-c", f"echo {name} > /tmp/ours; echo {name} >> {bed.shared}/ours; touch /dev/shm/{name}")
    assert bed.run("node1", "cat", "/tmp/ours").stdout == "node1\n"
    assert bed.run("node1", "ls", "/dev/shm").stdout == "node1\n"
    assert (bed.shared / "ours").read_text() == "node1\nnode2\n"
    assert not Path("/tmp/ours").exists()
    assert len(bed.run("node1", "ps", "-e", "-o", "comm=").stdout.split()) == 2  # sleep, ps
    assert "br0" not in os.listdir("/sys/class/net")


def test_a_cut_a_blackhole_and_their_healing(bed, listening):
    assert reaches(bed, "node1", listening)
    for fault in (bed.cut, bed.blackhole):
        fault("node2")
        assert not reaches(bed, "node1", listening)
        bed.heal("node2")
        assert reaches(bed, "node1", listening, within=10)


def test_another_user(bed):
    assert bed.run("node1", "id", "-u", user=1234).stdout == "1234\n"
    done = bed.run("node1", "sh", "-c", f"echo x > {bed.shared}/theirs", user=1234)
    assert done.returncode == 0, done.stderr


def test_a_killed_host_is_gone_alone():
    need_bed()
    with Bed(own_folder()) as bed:
        worker = bed.popen("node2", "sleep", "1000")
        bed.kill("node2")
        assert worker.wait(10) != 0
        assert not bed["node2"].alive
        assert bed.run("node1", "true").returncode == 0


@pytest.mark.parametrize("slurm", [False, True])
def test_nothing_is_left_when_its_maker_is_killed(tmp_path, slurm):
    need_bed(slurm=slurm)
    folder = own_folder()
    code = (
        "import time; from pathlib import Path\n"
        "from tests.cluster.bed import Bed; from tests.cluster.slurm import Slurm\n"
        f"bed = Bed(Path({str(folder)!r}), slurm=Slurm() if {slurm} else None); bed.up()\n"
        "bed.popen('node1', 'sleep', '1000'); print('up', flush=True); time.sleep(1000)"
    )
    maker = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert maker.stdout.readline() == b"up\n"
    hosts = json.loads((folder / "bed.json").read_text())["hosts"]
    around = {pid for host in hosts.values() for pid in members(host["init"])}
    assert len(around) > len(hosts)
    maker.kill()
    maker.communicate()
    deadline = time.monotonic() + 60
    while folder.exists() or any(Path(f"/proc/{pid}").exists() for pid in around):
        assert time.monotonic() < deadline, "something is left"
        time.sleep(0.01)


def test_a_stopped_process_does_not_hold_it_up():
    need_bed()
    with Bed(own_folder()) as bed:
        held = bed.popen("node1", "sh", "-c", "echo up; kill -STOP $$", stdout=subprocess.PIPE)
        assert held.stdout.readline() == b"up\n"
    held.communicate(timeout=60)


def test_slurm_runs_a_job_on_both_nodes(slurm_bed):
    done = slurm_bed.run("head", "srun", "-N2", "--ntasks-per-node=1", "hostname")
    assert sorted(done.stdout.split()) == ["node1", "node2"], done.stderr


def test_sixteen_nodes_with_slurm_and_gpus():
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=16, slurm=Slurm(gpus=2)) as bed:
        done = bed.run(
            "head", "srun", "-N16", "--gpus-per-node=2", "sh", "-c", "echo $SLURM_NODEID $SLURM_GPUS_ON_NODE"
        )
        assert sorted(done.stdout.splitlines()) == sorted(f"{n} 2" for n in range(16)), done.stderr


def test_by_hand(tmp_path):
    need_bed()
    folder = own_folder()

    def call(*args):
        command = [sys.executable, "-m", "tests.cluster", *map(str, args)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    assert call("up", folder, "--nodes", 1)[0] == 0
    try:
        assert call("exec", folder, "node1", "--", "hostname") == (0, "node1\n")
        assert call("up", folder) == (1, f"Error: {folder} exists already; name another, or `down` it first\n")
        assert call("cut", folder, "node7") == (1, "Error: no host is called 'node7'; there are node1\n")
        assert call("cut", folder, "node1")[0] == call("heal", folder, "node1")[0] == 0
    finally:
        assert call("down", folder)[0] == 0
    assert not folder.exists()
    assert call("exec", folder, "node1", "true") == (1, f"Error: {folder} holds no bed\n")
