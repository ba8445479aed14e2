"""NCCL's RAS is asked by its own protocol; a process that holds a library of NCCL's name plays a rank of NCCL's."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest

from distdbg.collect.machine.nccl_ras import NoRas, ask_ras
from distdbg.collect.runs.dump_files import load_dump
from distdbg.evidence.recorder.nccl_ras import read_ras
from distdbg.launch.io.ports import ReservedPort
from distdbg.launch.watch.capture import Capture
from distdbg.protocol.dump import CaptureRequest
from tests.evidence.recorder.test_nccl_ras import communicator, ras_answer

#: As client_support.cc of NCCL 2.28 does: a line for each line, and the end of the connection after the answer.
RANK = """
import mmap, os, socket, sys, time
kind, said = sys.argv[1], sys.argv[2].replace("1000", str(os.getpid())).encode()
with open("libnccl.so.2" if kind != "gloo" else "libgloo.so", "w+b") as library:
    library.write(bytes(4096))
    library.flush()
    held = mmap.mmap(library.fileno(), 4096, prot=mmap.PROT_READ)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(("127.0.0.1", int(os.environ["NCCL_RAS_ADDR"].rpartition(":")[2])))
if kind != "shut":
    listener.listen()
os.write(1, b"up\\n")
while True:
    client, _ = listener.accept() if kind != "shut" else time.sleep(1000)
    with client, client.makefile("rwb", buffering=0) as lines:
        for line in lines:
            word = line.strip().lower()
            if word.startswith(b"client protocol"):
                lines.write(b"SERVER PROTOCOL 2\\n" if kind != "stranger" else b"220 welcome\\n")
            elif word.startswith(b"set format") and kind == "old":
                lines.write(b"ERROR: Unknown command " + word + b"\\n")
            elif word.startswith((b"timeout", b"set format")):
                lines.write(b"OK\\n")
            else:
                assert word == b"verbose status"
                for at in range(0, len(said), 100):
                    lines.write(said[at : at + 100])
                if kind == "endless":
                    time.sleep(1000)
                break
"""
ANSWER = ras_answer(communicator("0xa", {0: {"AllReduce": 3}}))


@pytest.fixture
def rank(tmp_path):
    """`rank(kind, answer, **environment)` starts one; its pid."""
    with contextlib.ExitStack() as stack:

        def start(kind="plain", answer=ANSWER, **environment):
            port = ReservedPort()  # kept, so that nobody else gets it meanwhile
            stack.callback(port.release)
            env = {"PATH": os.environ["PATH"], "NCCL_RAS_ADDR": f"localhost:{port.number}", **environment}
            words = [sys.executable, "-c", RANK, kind, answer if isinstance(answer, str) else json.dumps(answer)]
            process = stack.enter_context(subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout.readline() == b"up\n"
            return process.pid

        yield start


def test_it_is_asked_twice_and_kept_in_the_dump(rank, tmp_path):
    pid = rank()
    request = {"folder": str(tmp_path / "dump"), "node_rank": 0, "host": "here", "looks": 1, "within": 30,
               "targets": [{"rank": 3, "pid": pid, "stem": None}]}  # fmt: skip
    part = json.loads(Capture(CaptureRequest.from_record(request)).run().read_text())
    assert (part["ras"], part["ras_after"]) == ({"file": "nccl-ras.json"}, {"file": "nccl-ras.after.json"})
    dump, _ = load_dump(tmp_path / "dump", "dump")
    assert [(c.name, c.ranks[0].pid, c.ranks[0].launched["AllReduce"]) for c in dump.communicators] == [("0xa", pid, 3)]
    assert dump.communicators_before == dump.communicators and dump.communicators_path == "dump/nccl-ras.after.json"
    (tmp_path / "dump/nccl-ras.after.json").write_text("{")
    dump, unknown = load_dump(tmp_path / "dump", "dump")
    assert dump.communicators and dump.communicators_path == "dump/nccl-ras.json"
    assert "dump/nccl-ras.after.json" in {one.what for one in unknown}


def test_of_two_jobs_on_one_port_each_gets_its_own_answer(rank):
    """The kernel gives a connection to either: at least one of eight askers would get the other's answer first."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        pids = [rank(NCCL_RAS_ADDR=f"localhost:{held.getsockname()[1]}") for _ in range(2)]
        for pid in pids * 4:
            (known,) = (r.pid for c in read_ras(json.loads(ask_ras([pid], 20.0))) for r in c.ranks)
            assert known == pid


def test_an_answer_of_nccl_2_28_lacks_a_comma_at_each_missing_rank(rank):
    """The real answer of 2.28.9 with a lost rank has this form (ray's tests hold one: ray-project/ray PR 64928)."""
    member = communicator("0xa", {0: {"AllReduce": 4}}, missing=[(1, True, False)])
    answer = json.dumps(ras_answer(member), indent=2).replace(
        '"nvml_dev": 0,\n          "status": {\n            "unre', "@"
    )
    answer = answer.replace("@", '"nvml_dev": 0\n          "status": {\n            "unre')
    with pytest.raises(ValueError, match="Expecting ',' delimiter"):
        json.loads(answer)
    pid = rank(answer=answer)
    (found,) = read_ras(json.loads(ask_ras([pid], 10)))
    assert [(one.rank, one.unreachable) for one in found.ranks] == [(0, ""), (1, "does not answer")]


@pytest.mark.parametrize(
    ("kind", "answer", "environment", "because"),
    [
        ("gloo", ANSWER, {}, "does not use NCCL"),
        ("plain", ANSWER, {"NCCL_RAS_ENABLE": "0"}, "NCCL_RAS_ENABLE=0"),
        ("shut", ANSWER, {}, "refused"),
        ("old", ANSWER, {}, "'SET FORMAT json' was answered with 'ERROR"),
        ("stranger", ANSWER, {}, "was answered with '220 welcome'"),
        ("plain", ras_answer(communicator("0xa", {1: {"AllReduce": 3}})), {}, "about another job"),
        ("plain", "{half of it", {}, "not JSON"),
        ("endless", ANSWER, {}, "timed out"),
    ],
)  # fmt: skip
def test_no_answer_of_this_job(rank, kind, answer, environment, because):
    with pytest.raises(NoRas, match=because):
        ask_ras([rank(kind, answer, **environment)], 20.0 if kind != "endless" else 1.0)
