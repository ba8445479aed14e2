"""Whether a host answers, whoever on it does or does not."""

import os
import signal
import subprocess
import sys

from distdbg.launch.io.ports import ReservedPort
from distdbg.launch.link.liveness import LivenessPort, connect_all, own_addresses


def test_an_open_door_and_a_closed_one():
    endpoint = LivenessPort()
    shut = ReservedPort()
    answers = connect_all([("127.0.0.1", endpoint.port), ("127.0.0.1", shut.number)], 2)
    assert answers[("127.0.0.1", endpoint.port)] is None
    assert answers[("127.0.0.1", shut.number)] == "Connection refused"
    endpoint.close()
    shut.release()


def test_a_stopped_process_leaves_its_door_open():
    code = "from distdbg.launch.link.liveness import LivenessPort; p = LivenessPort(); "
    code += "print(p.port, flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    port = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGSTOP)
    for _ in range(3):
        assert connect_all([("127.0.0.1", port)], 2)[("127.0.0.1", port)] is None
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(b"\n")
    assert connect_all([("127.0.0.1", port)], 2)[("127.0.0.1", port)] == "Connection refused"


def test_nobody_answers_for_an_address_that_is_nobodys():
    (why,) = connect_all([("192.0.2.1", 9)], 0.2).values()
    assert why  # no answer, or unreachable where there is no route


def test_own_addresses_are_never_loopback():
    assert not [address for address in own_addresses() if address.startswith(("127.", "::1"))]
