"""`distdbg preflight` on a cluster in a box: by ssh with a real sshd, by a real Slurm, and on this machine alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.sshd import Sshd, need_sshd
from tests.fake_nvml.library import fake_gpus

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bed")]
_NICKNAME = "\nHost nickname\n  HostName {node2}\n"


class Cluster:
    """A bed whose hosts answer ssh, and a repository in a folder that all of them see."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.work = bed.shared / "work"
        self.work.mkdir()
        self._server = Sshd(bed, _NICKNAME.format(node2=bed["node2"].address))
        self.folder = self._server.folder

    def sshd(self, name: str, more: str = "") -> None:
        self._server.start(self.bed[name], more)

    def preflight(self, *words: str, at: str = "node1", folder: Path | None = None, env=None, timeout=150):  # type: ignore[no-untyped-def]
        """(exit code, report, standard error) of the command in JSON."""
        command = [sys.executable, "-m", "distdbg", "preflight", "--json", *words]
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder or self.work), *command]
        done = self.bed.run(at, *inside, env=env, timeout=timeout)
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def by_ssh(self, *words: str, hosts: str = "node1,node2", **options):  # type: ignore[no-untyped-def]
        return self.preflight("--hosts", hosts, "--ssh-config", str(self.folder / "config"), *words, **options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    need_bed()
    need_sshd()
    with Bed(own_folder(), nodes=2) as bed:
        yield Cluster(bed)


def found(report):  # type: ignore[no-untyped-def]
    return [(f["id"], f["severity"], f["nodes"]) for f in report["findings"]]


def said(report):  # type: ignore[no-untyped-def]
    return " / ".join(f["summary"] for f in report["findings"])


# -- by ssh -------------------------------------------------------------------------------------------------------


def test_all_is_well(cluster):
    code, report, err = cluster.by_ssh()
    assert (code, found(report), report["unknown"]) == (0, [], []), (report, err)
    assert report["schema"] == "distdbg.report/1" and report["run"] is None
    assert list(cluster.work.iterdir()) == []  # nothing is left


def test_the_table(cluster):
    words = ["--hosts", "node1,node2", "--ssh-config", str(cluster.folder / "config"), "--port", "29511"]
    line = [sys.executable, "-m", "distdbg", "preflight", *words]
    done = cluster.bed.run("node1", *line, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row.split()[0]: row for row in done.stdout.splitlines()[1:] if row}
    assert all(row.split()[1] == "pass" for row in rows.values()), done.stdout
    assert "all reach node1 on port 29511, and back" in rows["nodes"]
    assert "eth0" in rows["interfaces"] and "over gloo" in rows["all-reduce"]


def test_hosts_as_the_users_configuration_knows_them(cluster):
    code, report, err = cluster.by_ssh("--no-allreduce", hosts="node1,root@nickname")
    assert (code, found(report)) == (0, []), (report, err)
    assert [u["what"] for u in report["unknown"]] == ["all-reduce"]


@pytest.mark.parametrize("fault", ["cut", "blackhole"])
def test_a_node_that_is_gone(cluster, fault):
    getattr(cluster.bed, fault)("node2")
    try:
        code, report, _ = cluster.by_ssh()
    finally:
        cluster.bed.heal("node2")
    assert (code, found(report)) == (10, [("unreachable", "error", ["node2"])])
    assert "ssh said: " in said(report)


def test_a_host_that_nobody_knows_and_one_machine_twice(cluster):
    code, report, _ = cluster.by_ssh("--no-allreduce", hosts="node1,nickname,node2,nonesuch")
    assert code == 10
    ids = [("duplicate-node-rank", "error", ["nickname", "node2"]), ("unreachable", "error", ["nonesuch"])]
    assert sorted(found(report)) == ids
    assert "node2" in said(report) and "nonesuch" in said(report)


def test_an_interface_that_is_not_there(cluster):
    code, report, _ = cluster.by_ssh(env={"GLOO_SOCKET_IFNAME": "ib7"})
    assert code == 10
    wrong, failed = report["findings"]
    assert (wrong["id"], wrong["nodes"], wrong["explained_by"]) == ("interface-wrong", ["node1", "node2"], None)
    assert (failed["id"], failed["explained_by"]) == ("all-reduce-failed", "interface-wrong")
    assert "GLOO_SOCKET_IFNAME=ib7 names no interface" in said(report)


def test_a_port_that_is_taken(cluster):
    code = "import socket; s = socket.create_server(('', 29512)); print('up', flush=True)\nwhile True: s.accept()"
    server = cluster.bed.popen("node1", sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"up\n"
    try:
        code, report, _ = cluster.by_ssh("--no-allreduce", "--port", "29512")
    finally:
        for pid, line in cluster.bed["node1"].processes().items():
            if "29512" in line:
                os.kill(pid, 9)
        server.wait()
        server.stdout.close()
    assert (code, found(report)) == (10, [("unreachable", "error", ["node1"])])
    assert "port 29512 cannot be used on node1: Address already in use" in said(report)


def test_a_firewall_before_the_port(cluster):
    """ssh goes through, the port does not."""
    rule = "ipproto tcp sport 29513 blackhole"  # its answers are lost
    done = cluster.bed.run("node1", "sh", "-c", f"ip rule add pref 1 {rule}")
    try:
        if done.returncode:
            pytest.skip(f"not possible here: {done.stderr.strip()}")
        code, report, _ = cluster.by_ssh("--port", "29513")
    finally:
        cluster.bed.run("node1", "ip", "rule", "del", "pref", "1")
    assert (code, found(report)) == (10, [("unreachable", "error", ["node2", "node1"])])
    assert "node2 does not reach node1" in said(report) and "no answer within" in said(report)


@pytest.fixture
def hosts_file(cluster):
    """Another /etc/hosts on a host, for one test."""
    changed = []

    def put(name: str, text: str) -> None:
        file = cluster.folder / f"hosts-{name}"
        file.write_text(text)
        assert cluster.bed.run(name, "mount", "--bind", str(file), "/etc/hosts").returncode == 0
        changed.append(name)

    yield put
    for name in changed:
        cluster.bed.run(name, "umount", "/etc/hosts")


def test_a_name_that_leads_to_127_0_1_1(cluster, hosts_file):
    """Debian's way: each host calls itself 127.0.1.1."""
    node1 = cluster.bed["node1"].address
    hosts_file("node2", f"127.0.0.1 localhost\n{node1} node1\n127.0.1.1 node2\n")
    code, report, _ = cluster.by_ssh()
    assert (code, found(report)) == (10, [("unreachable", "error", ["node2"])])
    assert "node2 is 127.0.1.1 on node2" in said(report)
    assert "gloo would wait in vain" in report["unknown"][0]["because"]


def test_a_name_that_leads_back_and_one_that_is_not_known(cluster, hosts_file):
    node2 = cluster.bed["node2"].address
    hosts_file("node2", f"127.0.0.1 localhost\n127.0.1.1 node1\n{node2} node2\n")
    code, report, _ = cluster.by_ssh("--no-allreduce")
    assert (code, found(report)) == (10, [("unreachable", "error", ["node2"])])
    assert "node1 is 127.0.1.1 on node2" in said(report) and "node1 does answer" in said(report)
    hosts_file("node2", f"127.0.0.1 localhost\n{node2} node2\n")
    code, report, _ = cluster.by_ssh("--no-allreduce")
    assert (code, found(report)) == (0, [("unreachable", "warning", ["node2"])])
    assert "node2 does not know the name node1" in said(report)


def test_another_torch_commit_and_variable_on_one_node(cluster):
    """On node2 alone: a package that shadows torch, a clock that is wrong, a variable, a checkout of its own."""
    shadow = cluster.folder / "shadow"
    (shadow / "torch").mkdir(parents=True)
    (shadow / "torch" / "__init__.py").write_text("")
    (shadow / "torch" / "version.py").write_text("__version__ = '2.4.0'\n")
    (shadow / "sitecustomize.py").write_text("import time\nreal = time.time\ntime.time = lambda: real() + 7\n")
    checkout = cluster.bed.shared / "checkout"
    for command in ("init -q", "commit -q --allow-empty -m one"):
        subprocess.run(["git", "init", "-q", checkout] if command == "init -q" else
                       ["git", "-C", checkout, *command.split()], check=True)  # fmt: skip
    other = cluster.folder / "other"
    subprocess.run(["git", "clone", "-q", checkout, other], check=True)
    subprocess.run(["git", "-C", other, "commit", "-q", "--allow-empty", "-m", "two"], check=True)
    assert cluster.bed.run("node2", "mount", "--bind", str(other), str(checkout)).returncode == 0
    cluster.sshd("node2", f"SetEnv NCCL_ALGO=Ring PYTHONPATH={shadow}")
    try:
        code, report, _ = cluster.by_ssh("--no-allreduce", folder=checkout)
    finally:
        cluster.sshd("node2")
        cluster.bed.run("node2", "umount", str(checkout))
    assert code == 10
    kinds = {(f["id"], f["severity"], f["summary"].split(" is ")[0]) for f in report["findings"]}
    assert kinds == {
        ("versions-differ", "error", "torch"),
        ("versions-differ", "warning", "the commit"),
        ("versions-differ", "warning", "$NCCL_ALGO"),
        ("clock-skew", "warning", "the clock of node2"),
        ("folder-not-shared", "warning", "node2 does not see the folder that runs go to"),
    }, report
    assert "2.4.0 on node2" in said(report) and "s ahead of node1's" in said(report)


def test_full_disks(cluster):
    """A small tmpfs in the run folder's place on node2, filled to the last byte, and a full /dev/shm."""
    script = (
        f"mount -t tmpfs -o size=256k tmpfs {cluster.work}; mount -t tmpfs -o size=256k tmpfs /dev/shm;"
        f"cat /dev/zero > {cluster.work}/fill; cat /dev/zero > /dev/shm/fill; true"
    )
    cluster.bed.run("node2", "sh", "-c", script)
    try:
        code, report, _ = cluster.by_ssh("--no-allreduce")
    finally:
        cluster.bed.run("node2", "sh", "-c", f"umount {cluster.work} /dev/shm")
    assert code == 10
    low = [("disk-low", "error", ["node2"])] * 2
    assert found(report) == [*low, ("folder-not-shared", "warning", ["node2"])]
    assert f"{cluster.work} on node2 has 0 bytes left" in said(report) and "/dev/shm on node2" in said(report)


def test_no_interpreter_on_one_node(cluster):
    """Not every host has what this one has: said in ssh's own words."""
    empty = cluster.folder / "empty"
    empty.mkdir()
    where = Path(sys.executable).parent
    cluster.bed.run("node2", "mount", "--bind", str(empty), str(where))
    try:
        code, report, _ = cluster.by_ssh("--no-allreduce")
    finally:
        cluster.bed.run("node2", "umount", str(where))
    assert (code, found(report)) == (10, [("unreachable", "error", ["node2"])])
    assert "not found" in said(report) or "No such file" in said(report)


def test_nothing_stays_when_it_is_killed(cluster):
    bed = cluster.bed
    command = [sys.executable, "-m", "distdbg", "preflight", "--hosts", "node1,node2"]
    running = bed.popen(
        "node1", *command, "--ssh-config", str(cluster.folder / "config"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def probes() -> list[int]:
        return [p for host in bed.nodes for p, line in host.processes().items() if "preflight/" in line]

    def until(what) -> None:  # type: ignore[no-untyped-def]
        import time

        deadline = time.monotonic() + 60
        while not what():
            assert time.monotonic() < deadline, probes()
            time.sleep(0.05)

    until(lambda: any("probe.py" in line for line in bed["node2"].processes().values()))
    (own,) = [p for p, line in bed["node1"].processes().items() if line.startswith(f"{sys.executable} -m distdbg")]
    os.kill(own, 9)
    running.wait()
    until(lambda: not probes())


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["--on", "ssh"], "does not know which hosts"),
        (["--hosts", "a,b", "--nodes", "3"], "--hosts names 2"),
        (["--hosts", "a,a"], "names 'a' twice"),
        (["--hosts", "-oProxyCommand=x"], "'-oProxyCommand=x' is no host"),
        (["--hosts", "a", "--on", "slurm"], "--on is slurm"),
    ],
)
def test_what_does_not_fit_together(distdbg, words, because):
    done = distdbg("preflight", *words)
    assert done.code == 2 and because in done.err, done


@pytest.mark.parametrize("nodes", ["", "node[1-"])
def test_an_allocation_that_is_none(distdbg, nodes):
    done = distdbg("preflight", "--on", "slurm", env={"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": nodes})
    assert done.code == 2 and "SLURM_JOB_NODELIST" in done.err, done


def test_a_tool_that_is_missing(distdbg, tmp_path):
    done = distdbg("preflight", "--hosts", "a,b", env={"PATH": str(tmp_path)})
    assert done.code == 4 and "ssh is not on PATH" in done.err, done


def test_a_slow_node_is_named_and_a_healthy_one_is_not():
    need_bed()
    need_sshd()
    with Bed(own_folder(), nodes=3) as bed:
        cluster = Cluster(bed)
        code, report, _ = cluster.by_ssh(hosts="node1,node2,node3")
        assert (code, found(report)) == (0, []), report
        slow = "tc qdisc add dev eth0 root tbf rate 40mbit burst 32k latency 400ms"
        done = bed.run("node3", "sh", "-c", slow)
        if done.returncode:
            pytest.skip(f"not possible here: {done.stderr.strip()}")
        code, report, _ = cluster.by_ssh(hosts="node1,node2,node3")
        assert (code, found(report)) == (0, [("slow-link", "warning", ["node3"])]), report


# -- on this machine ----------------------------------------------------------------------------------------------


def test_this_machine_alone(distdbg):
    done = distdbg("preflight", "--json", "--on", "local")
    report = json.loads(done.out)
    assert done.code in (0, 10) and not [f for f in report["findings"] if f["id"] == "unreachable"], done


def test_gpus_and_who_is_on_them(distdbg, tmp_path):
    text = f"""
driver version=570.86.15
gpu uuid=GPU-a name="NVIDIA H200" total=150000000000 used=90000000000 throttle=0x40 temperature=90
gpu uuid=GPU-b name="NVIDIA H200" total=150000000000 used=500000000 uncorrected=3
process gpu=0 pid={os.getpid()} used=89000000000"""
    done = distdbg("preflight", "--on", "local", env=fake_gpus(tmp_path, text))
    assert done.code == 10 and "2 a node" not in done.out, done
    flat = " ".join(done.out.split())
    assert "GPUs fail see below: 3 findings" in flat
    assert "GPU 1 of" in flat and "3 memory errors that ECC did not correct" in flat
    assert f"taken by pid {os.getpid()} (python" in flat and "throttled: hardware thermal slowdown, at 90 °C" in flat


# -- by Slurm -----------------------------------------------------------------------------------------------------


def test_outside_of_an_allocation_it_asks_for_one(slurm_bed):
    code, report, err = _by_slurm(slurm_bed, "head", "--on", "slurm", "--nodes", "2")
    assert (code, found(report), report["unknown"]) == (0, [], []), (report, err)
    assert slurm_bed.run("head", "squeue", "-h").stdout == ""


def test_more_nodes_than_there_are(slurm_bed):
    code, report, err = _by_slurm(slurm_bed, "head", "--on", "slurm", "--nodes", "5")
    assert code == 3 and "Slurm gave no nodes" in err, err
    assert report["findings"] == [] and "Slurm gave no nodes" in report["unknown"][0]["because"], report


def test_inside_an_allocation_beside_a_step_that_has_it_all(slurm_bed):
    holder = slurm_bed.popen(
        "head", "salloc", "-N2", "--exclusive", "sh", "-c", "srun sleep 1000 & echo $SLURM_JOB_ID; wait",
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    job = holder.stdout.readline().decode().strip()
    try:
        env = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "node[1-2]"}
        code, report, err = _by_slurm(slurm_bed, "head", env=env)
        assert (code, found(report), report["unknown"]) == (0, [], []), (report, err)
        slurm_bed.blackhole("node2")
        code, report, _ = _by_slurm(slurm_bed, "head", env=env)
        assert (code, found(report)) == (10, [("unreachable", "error", ["node2"])]), report
    finally:
        slurm_bed.heal("node2")
        slurm_bed.run("head", "scancel", job)
        holder.communicate(timeout=60)


def _by_slurm(bed: Bed, at: str, *words: str, env=None):  # type: ignore[no-untyped-def]
    inside = ["sh", "-c", 'cd "$0" && exec "$@"', str(bed.shared), sys.executable, "-m", "distdbg", "preflight"]
    done = bed.run(at, *inside, "--json", *words, env=env, timeout=200)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr
