"""What a launch makes of the watch's words, without a job: one look a silence, one dump at a time, and who is ended."""

import errno
import json
import time
from types import SimpleNamespace

import pytest

from distdbg.launch.live.state import RunState
from distdbg.launch.watch import hang
from distdbg.launch.watch.dump_requests import DumpRequests
from distdbg.launch.watch.hang import HangWatch, close_look_after
from distdbg.launch.watch.stall import StallEvent
from distdbg.protocol.agent_events import Dumped
from distdbg.protocol.dump import BUSY
from distdbg.rundir import create_run_dir
from distdbg.settings import JobSettings


class World:
    """A launcher with two nodes of two ranks; what they would say is said by `answer`."""

    def __init__(self, folder, monkeypatch, **settings):
        self.notes, self.said, self.shown, self.asked, self.ended = [], [], [], [], []
        self.run = create_run_dir("train", explicit=folder / "run")
        state = RunState()
        self.nodes = SimpleNamespace(living=[0, 1], ending=False, tell_all=self.asked.append, end=self.end)
        view = SimpleNamespace(say=self.said.append, show=self.shown.append)
        journal = SimpleNamespace(note=lambda message: self.notes.append((message.spec.name, message.fields())))
        self.hang = HangWatch(JobSettings(script="x.py", **settings), self.run, state, journal, view)
        self.hang.guard(self.nodes)
        monkeypatch.setattr(hang, "explain", lambda _run: ("the verdict", SimpleNamespace(findings=())))
        monkeypatch.setattr(hang, "_TRY_AGAIN_S", 0.05)
        for node in (0, 1):
            event = {"event": "attempt-started", "attempt": 1, "ranks": {str(2 * node): 0, str(2 * node + 1): 1}}
            state.apply(node, event)
            self.hang.hear(node, event)
        self.detected = []
        self.hang._watch = SimpleNamespace(check=lambda _now: self.detected.pop(0) if self.detected else None)

    def end(self, because):
        self.nodes.ending = True
        self.ended.append(because)

    def says(self, said, ago=5.0, ranks=()):
        self.detected.append(StallEvent(said, time.monotonic() - ago, ago, 4.0, ranks=ranks))
        self.hang.tick()

    def answer(self, because="", nodes=(0, 1), request=-1):
        folder = self.asked[request].folder
        for node in nodes:
            ranks = {str(r): {"failed": because} if because else "collected" for r in (2 * node, 2 * node + 1)}
            self.hang.hear(node, {"event": "dumped", "folder": folder, "ranks": ranks, "because": because})

    def until(self, condition):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, (self.notes, self.asked)
            self.hang.tick()
            time.sleep(0.01)

    def manifests(self):
        return [json.loads((d / "manifest.json").read_text()) for d in self.run.attempt(1).dumps()]

    def noted(self, event):
        return [fields for name, fields in self.notes if name == event]


def test_a_hang_that_is_reported(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.says("stalled")
    assert world.said == ["no rank has moved for 5 s: looking where they stand"]
    world.answer()
    world.until(lambda: world.shown)
    assert world.shown == ["the verdict"]
    assert not world.ended
    (manifest,) = world.manifests()
    assert manifest["ranks"] == dict.fromkeys("0123", "collected")


@pytest.mark.parametrize(("on_hang", "ended"), [("kill", "kill"), ("restart", "restart")])
def test_it_is_ended_after_it_was_shown(tmp_path, monkeypatch, on_hang, ended):
    world = World(tmp_path, monkeypatch, on_hang=on_hang)
    world.says("stalled")
    world.hang.tick()
    assert not world.ended, "the agents have not answered"
    world.answer()
    world.until(lambda: world.ended)
    assert world.shown == ["the verdict"]
    assert world.hang.ended == ended


def test_one_that_moves_while_it_is_looked_at_is_not_ended(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("stalled")
    world.says("moving-again")
    world.answer()
    world.until(lambda: world.shown)
    world.hang.tick()
    assert not world.ended


@pytest.mark.parametrize(
    ("exit_of_rank_3", "ended"),
    [
        ({"attempt": 1, "exit_code": 1, "asked_to_stop": None}, False),
        ({"attempt": 1, "exit_code": 0, "asked_to_stop": None}, True),
        ({"attempt": 1, "exit_code": -15, "asked_to_stop": 12.0}, True),
        ({"attempt": 0, "exit_code": 1, "asked_to_stop": None}, True),
    ],
)
def test_a_rank_that_fails_while_it_is_looked_at_ends_the_job_itself(tmp_path, monkeypatch, exit_of_rank_3, ended):
    """torchrun is ending the others then: the job failed with that rank's exit code, and did not hang."""
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("stalled")
    monkeypatch.setattr(world.hang._watch, "ended", lambda _rank: None, raising=False)
    world.hang.hear(1, {"event": "rank-exited", "rank": 3} | exit_of_rank_3)
    world.answer()
    world.until(lambda: world.shown and world.hang._look.finished)
    world.until(lambda: world.hang._working is None)
    assert bool(world.ended) == ended


def test_a_node_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(hang, "_OPTIONS", {"looks": 1, "interval": 0, "within": -3.9, "native": 0})
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("stalled")
    world.answer(nodes=[1])
    world.until(lambda: world.ended)
    (manifest,) = world.manifests()
    assert manifest["ranks"]["0"] == {"not_tried": "the agent of node 0 did not answer in time"}
    assert manifest["ranks"]["3"] == "collected"


def test_a_look_before_a_timeout_serves_the_hang_of_the_same_silence(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("timeout-near", ranks=(0, 1, 2, 3))
    world.says("stalled")
    world.answer()
    world.until(lambda: world.ended)
    assert len(world.asked) == 1
    assert [m["reason"] for m in world.manifests()] == ["timeout"]


def test_a_timeout_alone_ends_nothing(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("timeout-near", ranks=(0,))
    world.answer()
    world.until(lambda: world.shown)
    world.hang.tick()
    assert not world.ended


def test_the_next_silence_is_looked_at_once_the_first_look_is_over(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.says("timeout-near", ranks=(0,))
    world.says("stalled", ago=-1.0)  # ranks have moved since that look began
    assert len(world.asked) == 1
    world.answer()
    world.until(lambda: len(world.asked) == 2)


def test_where_somebody_else_takes_a_dump_it_is_tried_again(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("stalled")
    world.answer(because=BUSY)
    world.until(lambda: len(world.asked) == 2)
    assert not world.manifests(), "an empty dump would hide the other"
    world.answer()
    world.until(lambda: world.ended)


def test_a_dump_that_fails_everywhere_does_not_save_the_job(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("stalled")
    world.answer(because="there is no room for a dump")
    world.until(lambda: world.ended)
    assert world.noted("dump")[0]["because"] == [f"node {n}: there is no room for a dump" for n in (0, 1)]


def test_manifest_that_has_no_room_does_not_prevent_the_verdict(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hang, "write_json", refuse)
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("stalled")
    world.answer(because="there is no room for a dump")
    world.until(lambda: world.ended)
    assert world.shown == ["the verdict"] and not world.noted("explain-failed")


def test_a_report_that_fails_does_not_save_it_either(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, on_hang="kill")
    monkeypatch.setattr(hang, "explain", lambda _run: 1 / 0)
    world.says("stalled")
    world.answer()
    world.until(lambda: world.ended)
    assert "could not be explained" in world.shown[0]


def test_a_run_directory_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(hang, "_EXPLAIN_WITHIN_S", 0.2)
    world = World(tmp_path, monkeypatch, on_hang="kill")
    monkeypatch.setattr(hang, "explain", lambda _run: time.sleep(2))
    world.says("stalled")
    world.answer()
    begun = time.monotonic()
    world.until(lambda: world.ended)
    assert time.monotonic() - begun < 1.5


def test_an_error_of_the_watch_costs_the_watch_alone(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.hang.hear(0, {"event": "attempt-started", "attempt": 2, "ranks": {"0": 0}})
    world.hang.hear(0, {"event": "signs", "ranks": [[1, 2]]})
    assert world.noted("hang-watch-error")
    world.hang.hear(0, {"event": "signs", "ranks": [[1, 2]]})
    world.hang.tick()
    assert len(world.noted("hang-watch-error")) == 1


def test_a_death_dump_that_an_agent_began_gets_a_manifest_and_no_words(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    folder = world.run.attempt(1).dump("death")
    world.hang.hear(0, {"event": "death-dump", "folder": str(folder)})
    for node in (0, 1):
        ranks = {str(2 * node): "collected", str(2 * node + 1): {"not_tried": "it had ended"}}
        world.hang.hear(node, {"event": "dumped", "folder": str(folder), "ranks": ranks})
    world.until(world.run.attempt(1).dumps)
    world.hang.finish()
    (manifest,) = world.manifests()
    assert manifest["reason"] == "death"
    assert manifest["ranks"]["1"] == {"not_tried": "it had ended"}
    assert world.said == world.shown == []


def test_who_looks_closely_and_when():
    def after(**settings):
        return close_look_after(JobSettings(script="x.py", **settings))

    assert after() == 20
    assert after(hang_timeout="off") == -1
    assert after(hang_timeout=6) == 2
    assert after(hang_timeout=600, startup_timeout=30) == 10
    assert after(hang_timeout=2) >= 0.5


def test_an_event_of_a_dump_that_nobody_asked_for_is_passed_over():
    requests = DumpRequests(lambda _request: None)
    requests.hear(0, Dumped.from_record({"event": "dumped", "folder": "/x"}))
    assert requests.done(1e9) == []
    assert not requests.busy


def test_a_slow_start_is_looked_at_and_ends_nothing(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, on_hang="kill")
    world.says("start-slow", ago=61.0)
    world.answer()
    world.until(lambda: world.shown)
    world.hang.tick()
    assert [m["reason"] for m in world.manifests()] == ["start"]
    assert not world.ended
    world.says("stalled", ago=90.0)
    assert len(world.asked) == 2, "the hang of the same silence is looked at anew"


def test_a_start_in_which_all_work_gets_a_line_and_no_verdict(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, on_hang="kill")
    monkeypatch.setattr(hang, "where_ranks_are", lambda _run, dump: f"rank 0 as {dump.name.rpartition('-')[2]} shows")
    world.says("start-busy", ago=61.0)
    assert world.said == []
    world.answer()
    world.until(lambda: world.said)
    assert "61 s" in world.said[0] and "rank 0 as busy shows" in world.said[0]
    assert not world.shown and not world.ended
    assert world.noted("start-slow")[0]["busy"]


@pytest.mark.parametrize(("settings", "said"), [
    ({}, []),
    ({"hang_timeout": "off"}, []),
    ({"hang_timeout": 30.0}, ["30 s", "from the start of the ranks"]),
    ({"hang_timeout": 30.0, "startup_timeout": 90.0}, ["30 s", "before the first step 90 s"]),
])  # fmt: skip
def test_the_first_lines_say_what_a_timeout_covers(settings, said):
    lines = hang.hang_lines(JobSettings(script="x.py", **settings))
    assert len(lines) == bool(said)
    assert all(words in lines[0] for words in said)


def test_only_a_time_that_a_person_gave_is_noted_as_given(tmp_path, monkeypatch):
    for folder, settings, given in (("a", {"hang_timeout": 5.0}, True), ("b", {}, False)):
        (tmp_path / folder).mkdir()
        world = World(tmp_path / folder, monkeypatch, **settings)
        world.says("stalled")
        assert [noted["given"] for noted in world.noted("stalled")] == [given]
