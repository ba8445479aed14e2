"""What is looked at on a node: on this machine, and on what a test puts in its place."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from distdbg.collect.preflight import disk, gpus, interfaces, limits, names, ptrace, software
from distdbg.collect.preflight.bandwidth import rounds
from distdbg.collect.preflight.looking import look_all
from distdbg.collect.preflight.meeting import Listener, meet, reach
from distdbg.evidence.host.probe_lines import ProbeUnpacker
from tests.fake_nvml.library import fake_gpus


def test_looks_that_raise_and_hang_are_unknown():
    never = threading.Event()

    def broken():
        raise OSError(5, "Input/output error")

    begun = time.monotonic()
    found = look_all({"good": lambda: {"a": 1}, "broken": broken, "hangs": never.wait}, 0.2)
    assert time.monotonic() - begun < 5
    never.set()
    assert found["good"] == {"a": 1}
    assert "Input/output error" in found["broken"]["unknown"]
    assert found["hangs"] == {"unknown": "no answer within 0.2 s"}


def test_names(monkeypatch):
    monkeypatch.setenv("PET_NODE_RANK", "3")
    monkeypatch.setenv("NODE_RANK", "x")
    found = names.look()
    assert found["hostname"] == socket.gethostname() and found["ranks"] == {"PET_NODE_RANK": "3"}
    assert found["addresses"] or found["because"]
    assert names.resolve("127.0.1.1") == (["127.0.1.1"], "")
    assert names.resolve("nonesuch.invalid")[1]
    assert names.resolve("a" * 300)[1]


def test_interfaces(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    found = interfaces.look()
    (loopback,) = [one for one in found["interfaces"] if one["name"] == "lo"]
    assert loopback["loopback"] and loopback["up"] and "127.0.0.1" in loopback["addresses"]
    assert loopback["mtu"] >= 1500
    assert found["told"] == {"GLOO_SOCKET_IFNAME": "eth7"}


def test_disk(tmp_path):
    (tmp_path / "token").touch()
    found = disk.look(tmp_path, "token")
    here = found["places"][0]
    assert found["sees_token"] is True and here["of"] == "runs" and 0 < here["free"] <= here["total"]
    assert disk.look(tmp_path, "other")["sees_token"] is False
    assert disk.look(tmp_path)["sees_token"] is None
    assert disk.look(tmp_path / "none")["places"][0]["because"] == "No such file or directory"


def test_limits_and_ptrace():
    found = limits.look()
    assert set(found["limits"]) == {"nofile", "memlock", "nproc", "core"}
    assert all(isinstance(value, int) for pair in found["limits"].values() for value in pair)
    assert set(ptrace.look()) == {"pyspy", "ptrace", "because"}


def test_software(tmp_path, monkeypatch):
    for name, value in {"NCCL_ALGO": "Ring", "NCCL_SOCKET_IFNAME": "eth", "NCCL_IB_HCA": "mlx5", "HF_TOKEN": "x",
                        "NCCL_DEBUG_FILE": "/x", "OMP_NUM_THREADS": "4"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    found = software.look(tmp_path)
    assert found["environment"] == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "4"}
    assert found["git"] == {"unknown": "not in a git repository"} and found["versions"]["python"]


def test_gpus_and_who_is_on_them(tmp_path):
    text = f"""
gpu uuid=GPU-a name="NVIDIA H200" bus=00000000:19:00.0 total=1000 used=900 throttle=0x8 nvlinks=110
gpu uuid=GPU-b name="NVIDIA H200" total=1000 used=0
process gpu=0 pid={os.getpid()} used=800
error call=nvmlDeviceGetHandleByIndex gpu=1 code=15
"""
    code = "import json; from distdbg.collect.preflight import gpus; print(json.dumps(gpus.look()))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **fake_gpus(tmp_path, text)}, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    first, second = found["gpus"]
    assert (first["throttle"], first["nvlinks"]) == (["hardware slowdown"], 2)
    (process,) = first["processes"]
    assert process["pid"] == os.getpid() and process["memory_used"] == 800
    assert process["command"].startswith("python") and process["user"]
    assert second["unknown"]["device"] == "the GPU has fallen off the bus"


def test_a_driver_that_is_not_loaded_is_no_gpu(tmp_path):
    code = "import json; from distdbg.collect.preflight import gpus; print(json.dumps(gpus.look()))"
    env = {**os.environ, **fake_gpus(tmp_path, "error call=nvmlInit code=9")}
    found = json.loads(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout)
    assert found.get("gpus") == [] or "unknown" in found  # the latter where the machine has a driver of its own


def test_xids():
    text = "NVRM: Xid (PCI:0000:19:00): 79, pid=1234, GPU has fallen off the bus."
    assert list(gpus.xids(["something else", text])) == [("0000:19:00", 79, text)]


# -- meeting ------------------------------------------------------------------------------------------------------


@pytest.fixture
def listener():
    made = Listener("node1", 0)
    yield made
    made.close()


def test_two_meet(listener):
    (met,) = meet([{"name": "node1", "hostname": "localhost", "addresses": [], "port": listener.port}])
    way = met["by_name"]
    assert met["to"] == "node1" and way == met["by_address"]
    assert way["ok"] and way["source"] in ("127.0.0.1", "::1") and 0 < way["rtt"] < 5
    assert abs(way["offset"]) <= way["rtt"]


def test_by_address_where_the_name_leads_nowhere(listener):
    peer = {"name": "node1", "hostname": "nonesuch.invalid", "addresses": ["127.0.0.1"], "port": listener.port}
    (met,) = meet([peer])
    assert not met["by_name"]["ok"] and met["by_name"]["because"] and met["by_address"]["ok"]


def test_somebody_else_answers(listener):
    assert reach("node2", ["127.0.0.1"], listener.port)["because"] == "node1 answers there"


def test_nobody_and_a_stranger_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def greet():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"220 mail ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        assert not reach("node1", ["127.0.0.1"], port)["ok"]
        thread.join()
    assert reach("node1", ["127.0.0.1"], port)["because"] == "Connection refused"
    assert reach("node1", [], port)["because"] == "it has no address"


def test_a_port_that_is_taken_is_said_and_given_back(listener):
    second = Listener("other", listener.port)
    assert second.because == "Address already in use" and second.port != listener.port
    assert reach("other", ["127.0.0.1"], second.port)["ok"]
    port = second.port
    second.close()
    third = Listener("third", port)  # at once: a store takes the very port
    assert third.port == port and not third.because
    third.close()


# -- the program --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", range(2, 10))
def test_every_pair_meets_once_and_nobody_twice_at_a_time(world):
    seen = set()
    for pairing in rounds(world):
        assert all(pairing[pairing[rank]] == rank for rank in pairing)
        seen |= {(a, b) for a, b in pairing.items() if a < b}
    assert len(list(rounds(world))) == world - 1 + world % 2
    assert seen == {(a, b) for a in range(world) for b in range(a + 1, world)}


def test_the_probe_looks_and_ends_with_its_standard_input(tmp_path):
    (tmp_path / "selectors.py").write_text("raise SystemExit('shadowed')")
    probe = os.path.join(os.path.dirname(disk.__file__), "probe.py")
    command = [sys.executable, probe, "--folder", str(tmp_path), "--name", "a b"]
    done = subprocess.run(command, cwd=tmp_path, input='nonsense\n{"do": "other"}\n', capture_output=True, text=True,
                          timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    unpacker = ProbeUnpacker()
    (message,) = [one for line in done.stdout.splitlines() if (one := unpacker.take(line))]
    node, kind, value = message
    assert (node, kind) == ("a_b", "looked") and not unpacker.noise
    assert all("unknown" not in value[look] for look in ("names", "interfaces", "disk", "limits", "software"))
