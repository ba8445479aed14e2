"""The agent's side of a dump without a job: deadlines, what is left stopped, who is accounted for."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from distdbg.collect.machine import procfs
from distdbg.launch.agent import dumping
from distdbg.launch.agent.death_dump import DeathDumps, NodeDeathDump
from distdbg.launch.agent.dumping import Dumper
from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.io.loop import Loop
from distdbg.protocol.page import Page, read_page
from distdbg.protocol.requests import TakeDump
from distdbg.rundir import RunDir
from distdbg.worker.page import CALLS, PageWriter


class FakeNode:
    """Keeps events; what goes to the disk thread is written at once."""

    def __init__(self, folder):
        self.run = RunDir(folder / "run")
        self.folder = folder / "node"
        self.folder.mkdir()
        self.node_rank, self.host, self.attempt = 0, "here", 1
        self.events = []
        self.disk = self

    def event(self, message):
        self.events.append(message.record(0.0))

    def write_whole(self, path, data):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def sent(self, name):
        return [e for e in self.events if e["event"] == name]


class Sleeper:
    """A process that stands for a rank."""

    def __init__(self, node, number):
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        self.rank = RankProcess(number, number, 1, node.folder / f"{number:05d}.page", node.folder / "error")
        self.rank.attach(self.process.pid)

    def end(self):
        self.process.kill()
        self.process.wait()
        if self.rank.pidfd is not None:
            os.close(self.rank.pidfd)


@pytest.fixture
def node(tmp_path):
    return FakeNode(tmp_path)


@pytest.fixture
def two(node):
    sleepers = [Sleeper(node, number) for number in range(2)]
    yield sleepers
    for sleeper in sleepers:
        sleeper.end()


def make(node, sleepers):
    """A loop and a dumper over these ranks."""
    loop = Loop()
    ranks = {s.rank.rank: s.rank for s in sleepers}
    living = [r for r in ranks.values() if r.alive]
    looks = DeathDumps(loop, node)
    connections = SimpleNamespace(ask=lambda *_: None)
    phases = SimpleNamespace(shares=dict)
    watch = SimpleNamespace(ranks=ranks, living=living, death_dumps=looks, connections=connections, phases=phases)
    return loop, Dumper(loop, node, watch)


def capture_that(monkeypatch, tmp_path, body):
    program = tmp_path / "capture.py"
    program.write_text(f"import json, os, signal, sys, time\nrequest = json.load(sys.stdin)\n{textwrap.dedent(body)}")
    monkeypatch.setattr(dumping, "_CAPTURE", program)


def request(node, **fields):
    return TakeDump(folder=str(node.run.attempt(1).dump("asked")), **fields)


def test_a_real_capture_of_processes_that_are_no_ranks(node, two):
    loop, dumper = make(node, two)
    dumper.ask(request(node, looks=1, within=20))
    assert loop.turn_until(lambda: node.sent("dumped"), 30)
    (dumped,) = node.sent("dumped")
    assert set(dumped["ranks"]) == {"0", "1"}
    assert dumped["because"] == ""
    assert (Path(dumped["folder"]) / "nodes" / "0000.json").exists()
    (access,) = node.sent("rungs") or [{"ptrace": True}]
    assert access["ptrace"]


@pytest.mark.slow
def test_one_that_does_not_end_is_ended_and_nobody_stays_stopped(node, two, monkeypatch, tmp_path):
    """As py-spy would leave a rank where it is killed in the middle of its work."""
    monkeypatch.setattr(dumping, "_LATE_S", 0.1)
    stopped_before, stopped_by_it = (s.process.pid for s in two)
    os.kill(stopped_before, signal.SIGSTOP)
    os.waitpid(stopped_before, os.WUNTRACED)
    capture_that(monkeypatch, tmp_path, f"os.kill({stopped_by_it}, signal.SIGSTOP)\ntime.sleep(60)")
    loop, dumper = make(node, two)
    dumper.ask(request(node, within=1.5))
    assert loop.turn_until(lambda: node.sent("dumped"), 20)
    (dumped,) = node.sent("dumped")
    assert dumped["ranks"] == {r: {"failed": "the capture did not end within 1.5 s"} for r in "01"}
    state = {pid: procfs.stat_fields(pid)[0] for pid in (stopped_before, stopped_by_it)}
    assert state[stopped_before] == "T", "it was so before"
    assert state[stopped_by_it] != "T"
    assert [e["rank"] for e in node.sent("made-to-go-on")] == [1]


def test_one_that_fails_says_why_and_the_next_may_begin(node, two, monkeypatch, tmp_path):
    capture_that(monkeypatch, tmp_path, "sys.exit('there is no room for a dump')")
    loop, dumper = make(node, two)
    for number in (1, 2):
        dumper.ask(request(node))
        assert loop.turn_until(lambda n=number: len(node.sent("dumped")) == n, 20)
    assert {e["because"] for e in node.sent("dumped")} == {"there is no room for a dump"}


@pytest.mark.slow
def test_one_at_a_time(node, two, monkeypatch, tmp_path):
    capture_that(monkeypatch, tmp_path, "time.sleep(1)\nprint(json.dumps({'ranks': {'0': 'collected'}}))")
    loop, dumper = make(node, two)
    dumper.ask(request(node))
    dumper.ask(request(node))
    (refused,) = node.sent("dumped")
    assert refused["because"] == "another dump is being taken on this node"
    assert loop.turn_until(lambda: len(node.sent("dumped")) == 2, 20)
    dumped = node.sent("dumped")[1]["ranks"]
    assert dumped["0"] == "collected" and "failed" in dumped["1"]


@pytest.mark.parametrize("folder", ["/etc/x", "dumps/../../x", "None", ""])
def test_what_is_no_dump_of_this_attempt_is_refused(node, two, folder):
    _, dumper = make(node, two)
    dumper.ask(TakeDump(folder=folder))
    (dumped,) = node.sent("dumped")
    assert "is no dump of attempt 1" in dumped["because"]
    assert set(dumped["ranks"]) == {"0", "1"}


def test_ranks_that_have_ended_are_not_tried(node, two, monkeypatch, tmp_path):
    capture_that(
        monkeypatch, tmp_path, "print(json.dumps({'ranks': {str(t['rank']): 'collected' for t in request['targets']}}))"
    )
    two[1].rank.end(3)
    loop, dumper = make(node, two)
    dumper.ask(request(node))
    assert loop.turn_until(lambda: node.sent("dumped"), 20)
    assert node.sent("dumped")[0]["ranks"] == {"0": "collected", "1": {"not_tried": "it had ended (exit code 3)"}}


def test_an_agent_that_ends_takes_the_capture_with_it(node, two, monkeypatch, tmp_path):
    capture_that(monkeypatch, tmp_path, "time.sleep(60)")
    _, dumper = make(node, two)
    dumper.ask(request(node))
    child = dumper._child
    dumper.stop()
    assert child.wait(10) == -signal.SIGKILL


# -- the last look ----------------------------------------------------------------------------------------------------


class Recorders:
    """Answer as torch's do, each after `delay` seconds, with `size` bytes; None: never."""

    def __init__(self, node, numbers, delay, size):
        self.body = b'{"entries": []' + b" " * size + b"}"
        self.delay = delay
        for number in numbers:
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(node.folder / f"{number:05d}.recorder"))
            server.listen()
            threading.Thread(target=self.serve, args=(server,), daemon=True).start()

    def serve(self, server):
        while True:
            connection, _ = server.accept()
            with connection:
                names = connection.recv(4096).startswith(b"GET /handler/ ")
                if self.delay is None:
                    time.sleep(5)
                    return
                time.sleep(0 if names else self.delay)
                body = b'["fr_trace_json"]' if names else self.body
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                with suppress(BrokenPipeError):  # who asked has stopped listening
                    connection.sendall(head + body)


def living(node, count):
    """Ranks that are alive as far as a look at /proc goes: this very process."""
    ranks = []
    for number in range(count):
        rank = RankProcess(number, number, 1, node.folder / f"{number:05d}.page", node.folder / "error")
        rank.pid = os.getpid()
        ranks.append(rank)
    return ranks


def test_sixty_four_recorders_are_asked_within_the_time_that_a_death_leaves(node):
    ranks = living(node, 64)
    Recorders(node, range(63), 0.03, 300_000)
    ranks[63].end(1)
    begun = time.monotonic()
    look = NodeDeathDump(node, node.run.attempt(1).dump("death"), ranks)
    while not look.done:
        time.sleep(0.005)
    assert time.monotonic() - begun < 0.45
    look.write()
    (dumped,) = node.sent("dumped")
    assert set(dumped["ranks"]) == {str(n) for n in range(64)}
    assert dumped["ranks"]["63"] == {"not_tried": "it had ended"}
    kinds = {json.dumps(dumped["ranks"][str(n)]) for n in range(63)}
    assert '"collected"' in kinds
    part = json.loads((Path(dumped["folder"]) / "nodes" / "0000.json").read_text())
    assert [r["rank"] for r in part["ranks"]] == list(range(64))


def test_a_recorder_that_does_not_answer_holds_nobody_up(node):
    ranks = living(node, 3)
    Recorders(node, [0], None, 0)
    Recorders(node, [1], 0.0, 10)
    look = NodeDeathDump(node, node.run.attempt(1).dump("death"), ranks)
    begun = time.monotonic()
    while not look.done:
        time.sleep(0.005)
    assert time.monotonic() - begun < 0.4
    time.sleep(0.1)
    look.write()
    dumped = node.sent("dumped")[0]["ranks"]
    assert dumped["1"] == "collected"
    assert "does not answer" in str(dumped["0"]) or "no time" in str(dumped["0"])
    assert "serves none" in dumped["2"]["failed"]


def died(node, exit_code=1):
    rank = RankProcess(9, 9, 1, node.folder / "00009.page", node.folder / "error")
    rank.pid = 1
    rank.end(exit_code)
    return rank


def stands(rank, phase="exiting", **counts):
    """It has a page that does not move."""
    rank.sample = lambda: None
    rank.page = Page(rank.pid, rank.rank, 1, phase, (0,) * 20)
    for name, count in (counts or {"step": 3, "batches": 3, "backwards": 3}).items():
        setattr(rank.page, name, count)


def test_a_rank_that_has_most_likely_just_finished_is_no_death(node):
    looks, ranks = DeathDumps(Loop(), node), living(node, 2)
    Recorders(node, [0, 1], 0.0, 10)
    for rank in ranks:
        stands(rank)
    gone = died(node, None)
    stands(gone)
    looks.begin(gone, ranks)
    assert node.sent("death-dump") == []
    gone.page.phase = "backward"
    looks.begin(gone, ranks)
    assert len(node.sent("death-dump")) == 1


def test_where_no_rank_has_a_recorder_there_is_no_last_look(node):
    looks = DeathDumps(Loop(), node)
    ranks = living(node, 4)
    look = looks.begin(ranks[3], ranks)
    assert look.done
    look.write()
    assert node.events == []


def test_what_ranks_have_called_outlives_them_all(node):
    gone = died(node)
    (node.folder / "00009.calls").write_bytes(b"calls")
    script = node.folder / "train.py"
    script.write_text("dist.barrier()\n")
    (node.folder / "00009.sites").write_text(
        f"barrier\t{script}\t1\tmain\t\t\t\t\nbarrier\t/gone.py\t1\tmain\t\t\t\t\n"
    )
    page = PageWriter(str(gone.page_path), 9, 1)
    page.counter(CALLS)(None)
    gone.page = read_page(gone.page_path.read_bytes())
    look = DeathDumps(Loop(), node).begin(gone, [gone])
    while not look.done:
        time.sleep(0.005)
    look.write()
    (dumped,) = node.sent("dumped")
    assert dumped["ranks"] == {"9": {"not_tried": "it had ended"}}
    folder = Path(dumped["folder"])
    assert (folder / "calls" / "00009.calls").read_bytes() == b"calls"
    sources = json.loads((folder / "nodes" / "0000.json").read_text())["sources"]
    assert {file: (folder / name).read_text() for file, name in sources.items()} == {str(script): "dist.barrier()\n"}


@pytest.mark.parametrize(("heard", "looks_again"), [(42, False), (200, True)])
def test_ranks_that_never_train_went_on_where_they_were_heard_often(node, heard, looks_again):
    looks, ranks = DeathDumps(Loop(), node), living(node, 2)
    Recorders(node, [0, 1], 0.0, 10)
    for rank in ranks:
        stands(rank, "other", calls=40)
    looks.note_dumped(ranks)
    ranks[0].page.calls = heard
    looks.begin(died(node), ranks)
    assert bool(node.sent("death-dump")) is looks_again


def test_a_dump_of_ranks_that_stand_as_they_stood_is_not_hidden_by_a_last_look(node):
    looks, ranks = DeathDumps(Loop(), node), living(node, 2)
    Recorders(node, [0, 1], 0.0, 10)
    for rank in ranks:
        stands(rank)
    looks.note_dumped(ranks)
    looks.begin(died(node), ranks)
    assert node.sent("death-dump") == []
    ranks[0].page.step = 4
    assert looks.begin(died(node), ranks) is not None
    assert len(node.sent("death-dump")) == 1


def test_the_first_death_of_an_attempt_is_dumped_and_not_those_that_it_causes(node):
    looks, ranks = DeathDumps(Loop(), node), living(node, 2)
    Recorders(node, [0, 1], 0.0, 10)
    for rank in ranks:
        stands(rank)
    first = node.run.attempt(1).dump("death")
    looks.beside(first, ranks)  # of another node
    for rank in ranks:
        rank.page.step = 4  # it went on, to its own end
    looks.begin(died(node), ranks)
    assert node.sent("death-dump") == []
    node.attempt = 2
    looks.begin(died(node), ranks)
    assert len(node.sent("death-dump")) == 1
