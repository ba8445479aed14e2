"""The line to the agent: what is sent is JSON, and an agent that does not listen costs nothing."""

import json
import os
import socket
import tempfile
import time
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distdbg.worker.link import Link, encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine
@given(VALUES)
def test_encode_writes_what_json_reads(value):
    assert json.loads(encode(value)) == value


def test_encode_takes_anything():
    class Odd(int):
        def __repr__(self):
            return "odd"

    assert json.loads(encode({"a": Odd(3), "b": float("nan"), "c": object, 4: "\ud800", "e": (1,)})) == {
        "a": 3,
        "b": None,
        "c": "<class 'object'>",
        "4": "\ud800",
        "e": [1],
    }
    assert len(encode("x" * 10_000_000)) < 250_000


@contextmanager
def connected():
    with tempfile.TemporaryDirectory(prefix="ddbg") as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/agent.sock")
        server.listen()
        link = Link(f"{folder}/agent.sock")
        agent, _ = server.accept()
        with agent:
            yield link, agent
        link.close()


def test_an_agent_that_does_not_read_costs_no_time_and_gets_no_half_line():
    with connected() as (link, agent):
        taken = slowest = 0
        for number in range(100):
            started = time.perf_counter()
            taken += link.send("fact", {"number": number, "text": "x" * 50_000})
            slowest = max(slowest, time.perf_counter() - started)
        assert 0 < taken < 100
        assert slowest < 2, f"a message took {slowest:.1f} s: one that waited for its reader would wait for ever"
        agent.settimeout(5)
        data = b""
        while data.count(b"\n") < taken - 1:
            data += agent.recv(1 << 20)
        assert link.send("fact", {"number": "last"}), "the agent has caught up"
        while b'"last"' not in data:
            data += agent.recv(1 << 20)
        lines = [json.loads(line) for line in data.splitlines()]
        assert len(lines) == taken + 1
        assert lines[-1]["number"] == "last"


def test_an_agent_that_has_gone_is_no_error():
    with connected() as (link, agent):
        agent.close()
        assert link.wait() == b""
        assert not link.send("fact", {})


def test_a_descriptor_that_the_script_closed_and_used_anew_is_left_alone(tmp_path):
    with connected() as (link, _agent):
        number = link._socket.fileno()
        saved = os.dup(number)
        with (tmp_path / "users").open("w") as users:
            os.dup2(users.fileno(), number)
            assert not link.send("fact", {})
        other, peer = socket.socketpair()
        with other, peer:
            os.dup2(other.fileno(), number)
            assert not link.send("fact", {})
            peer.setblocking(False)
            with pytest.raises(BlockingIOError):
                peer.recv(1)
        os.dup2(saved, number)
        os.close(saved)
