"""`--profile` inside a rank, under torch's real profiler: the window, what is written, and every way to get none."""

import gzip
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

from distdbg.evidence.trace.marks import HEADER, LINE, step_of
from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.page import PageWriter
from distdbg.worker.profile import profiler
from distdbg.worker.profile.profiler import Profiler, pack, profiler_of_the_script, start
from tests.launch.file_systems import tiny_file_system
from tests.worker.test_session import Rank

pytestmark = pytest.mark.slow  # torch in this process

#: where Trained.steps waits for a number
SYNC_LINE = next(
    n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.strip() == "loss.item()"
)


class Ears(Bus):
    """A bus that listens to no torch."""

    def _install_later(self, point):
        pass


class Trained:
    """A rank's session as the profiler knows it, and a training whose events are heard."""

    rank, attempt = 3, 2

    def __init__(self, folder):
        self.folder, self.stem, self.reported, self.dropped, self.link = folder, f"{folder}/00003", [], [], self
        self.page = PageWriter(f"{self.stem}.page", 3, 2)
        self.bus = Ears(ImportWatch(lambda *_: None), lambda *what: self.dropped.append(what))
        self.page.subscribe(self.bus)
        self.model = torch.nn.Linear(4, 4)
        self.before = dict(self.bus._subscribers)

    def send(self, op, fields, *, last_words=False):
        assert op == "profile"
        self.reported.append(fields)
        return True

    def hear(self, *events):
        for event in events:
            self.bus.channel(event)[0](None)

    def steps(self, count):
        for _ in range(count):
            self.hear("data", "batch", "forward")
            loss = self.model(torch.ones(2, 4)).sum()
            loss.item()
            self.hear("backward")
            loss.backward()
            self.hear("optimizer", "step")

    def written(self, profiler):
        """The last report and its trace; no hook of it is left."""
        profiler.finish()
        assert self.bus._subscribers == self.before and self.dropped == []
        (reported,) = self.reported
        for file in reported.get("files", ()):
            with gzip.open(self.folder / file["file"]) as packed:
                return reported, json.load(packed)
        return reported, None


@pytest.fixture
def rank(tmp_path):
    return Trained(tmp_path)


def test_nothing_is_profiled_unless_it_was_asked_of_this_rank(rank, monkeypatch):
    assert start(rank) is None
    monkeypatch.setenv("DISTDBG_PROFILE", "2:3")
    monkeypatch.setenv("DISTDBG_PROFILE_RANKS", "0-2,4")
    assert start(rank) is None
    monkeypatch.setenv("DISTDBG_PROFILE_RANKS", "0,2-4")
    assert start(rank) is not None and rank.bus._subscribers == rank.before, "nothing listens before the window"


def test_a_window_is_written_with_its_steps_phases_and_lines(rank):
    asked = Profiler(rank)
    asked.await_steps(2, 3)
    rank.steps(1)
    assert rank.bus._subscribers != rank.before
    rank.steps(4)
    reported, trace = rank.written(asked)
    assert (reported["wanted"], reported["first"], reported["last"], reported["missing"]) == ([2, 3], 2, 3, "")
    assert reported["files"] == [{"file": "00003.profile-steps-2-3.json.gz", "name": "steps-2-3.json.gz"}]
    assert {name: trace[HEADER][name] for name in ("rank", "attempt", "first", "last", "stacks")} == {
        "rank": 3, "attempt": 2, "first": 2, "last": 3, "stacks": True}  # fmt: skip
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    steps = {step_of(e["name"]): e for e in events if step_of(e["name"])}
    assert sorted(steps) == [2, 3]
    phases = sorted((e for e in events if e["tid"] == 1 and e not in steps.values()), key=lambda e: e["ts"])
    names = [e["name"].partition(":")[2] for e in phases]
    assert names == ["loader", "computing", "forward", "backward", "optimizer"] * 2
    for number, at in ((2, 0), (3, 5)):
        step = steps[number]
        assert (
            step["ts"] <= phases[at]["ts"] and phases[at + 4]["ts"] + phases[at + 4]["dur"] <= step["ts"] + step["dur"]
        )
    items = [e for e in events if e["name"] == "aten::item"]
    lines = [e for e in events if e["name"] == LINE]
    assert len(items) == 2
    for item in items:  # the profiler's clock and ours are one, to some us
        forward = next(e for e in phases if e["name"] == "distdbg:forward" and _within(item, e, slack=50))
        assert forward
        innermost = min((e for e in lines if _within(item, e)), key=lambda e: e["dur"])
        assert innermost["args"] == {"file": __file__, "line": SYNC_LINE}


def _within(inner, outer, slack=0.0):
    return outer["ts"] - slack <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + slack


def test_the_first_step_begins_with_the_first_word(rank):
    asked = Profiler(rank)
    asked.await_steps(1, 1)
    rank.steps(2)
    reported, trace = rank.written(asked)
    assert (reported["first"], reported["last"]) == (1, 1)
    (step,) = (e for e in trace["traceEvents"] if step_of(e["name"]))
    assert step["name"] == "distdbg:step 1" and 0 <= step["args"]["queued_us"] <= step["dur"]


def test_a_running_rank_profiles_its_next_steps(rank):
    rank.steps(7)
    asked = Profiler(rank)
    asked.ask("token", 3, 2)  # a step that is past
    asked.ask("other", 3, 2)
    assert rank.reported == [{"id": "other", "wanted": [3, 4],
                          "because": "this rank waits for the steps that it is to profile"}]  # fmt: skip
    rank.reported.clear()
    rank.steps(5)
    reported, _ = rank.written(asked)
    assert (reported["id"], reported["first"], reported["last"]) == ("token", 9, 10)


@pytest.mark.parametrize(("steps", "words"), [
    (0, "the script ended after 0 steps, before step 4"), (2, "the script ended after 2 steps, before step 4"),
])  # fmt: skip
def test_a_job_that_ends_before_the_window_says_so(rank, steps, words):
    asked = Profiler(rank)
    asked.await_steps(4, 6)
    rank.steps(steps)
    asked.finish()
    assert [reported["because"] for reported in rank.reported] == [words]


def test_a_job_that_ends_in_the_window_leaves_the_steps_that_it_made(rank):
    asked = Profiler(rank)
    asked.await_steps(2, 9)
    rank.steps(4)
    reported, trace = rank.written(asked)
    assert (reported["first"], reported["last"], reported["missing"]) == (2, 4, "the script ended in step 5")
    assert trace[HEADER]["wanted"] == [2, 9]


def test_the_scripts_own_profiler_goes_first(rank):
    with torch.autograd.profiler.profile() as own:
        asked = Profiler(rank)
        asked.await_steps(2, 3)
        rank.steps(3)
    reported, _ = rank.written(asked)
    assert reported["because"] == "the script's own profiler was running"
    assert any(e.key == "aten::item" for e in own.key_averages())


def test_one_that_is_warmed_up_counts_and_one_that_is_done_does_not():
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1)) as own:
        assert profiler_of_the_script() == "the script's own torch.profiler was being warmed up"
        own.step()
        own.step()
    assert profiler_of_the_script() == ""


def test_the_window_ends_where_the_script_begins_a_profiler(rank):
    asked = Profiler(rank)
    asked.await_steps(2, 9)
    rank.steps(3)
    rank.hear("profiler")
    with torch.autograd.profiler.profile() as own:
        rank.steps(2)
    reported, _ = rank.written(asked)
    assert (reported["last"], reported["missing"]) == (3, "the script's own profiler began in step 4")
    assert any(e.key == "aten::item" for e in own.key_averages())


@pytest.mark.parametrize("broken", ["room", "begin", "disk"])
def test_what_goes_wrong_is_reported_and_the_training_goes_on(rank, monkeypatch, broken):
    if broken == "room":
        monkeypatch.setattr(profiler, "place", lambda folder: ("", f"{folder} has 3 MiB left to spare"))
    elif broken == "begin":
        monkeypatch.setattr(profiler, "begin", lambda stacks: 1 / 0)
    else:
        monkeypatch.setattr(
            profiler.Profiler, "_header", lambda *_: {HEADER: Path("/dev/full").write_text("x" * 99_999)}
        )
    asked = Profiler(rank)
    asked.await_steps(2, 3)
    rank.steps(5)
    reported, _ = rank.written(asked)
    words = {"room": "has 3 MiB left to spare", "begin": "ZeroDivisionError", "disk": "No space left"}
    assert words[broken] in reported["because"] and rank.page.steps() == 5


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A rank whose node has little memory for files; gives it with what makes the temporary directory as small."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with tiny_file_system(tmp_path / "shm", "64m") as folder:
        made = Trained(folder)
        yield made, lambda: monkeypatch.setattr(tempfile, "tempdir", str(folder))
        made.page.close()


def fill(folder, left):
    """All but `left` MiB."""
    with (folder / "batches").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(folder).free - (left << 20))


def profiled(rank, operators=1):
    asked = Profiler(rank)
    asked.await_steps(2, 2)
    rank.steps(1)
    for _ in range(operators):
        torch.ones(1)
    rank.steps(1)
    return rank.written(asked)


def test_what_the_ranks_of_a_node_need_together_must_be_there(small):
    rank, no_other_place = small
    no_other_place()
    fill(rank.folder, 16 + 30)  # of 64 MiB 16 stay free, and two ranks need 20 each
    assert profiled(rank)[0]["because"] == (
        f"{rank.folder} has 30 MiB left to spare, and this node's ranks may need 40 MiB"
    )


def test_a_profile_that_turns_out_too_large_is_given_up_and_leaves_nothing(small):
    rank, no_other_place = small
    no_other_place()
    reported, _ = profiled(rank, 12_000)
    assert "has 47 MiB left to spare, and this node's ranks may need" in reported["because"]
    assert [path.name for path in rank.folder.iterdir()] == ["00003.page"]


def test_where_the_node_has_too_little_memory_the_trace_is_written_elsewhere(small, tmp_path, monkeypatch):
    rank, _ = small
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    fill(rank.folder, 16 + 30)
    reported, trace = profiled(rank)
    assert reported["files"] and trace["traceEvents"] and list((tmp_path / "tmp").iterdir()) == []


def test_packing_ends_where_others_need_the_room(small):
    rank, _ = small
    source, target = rank.folder / "raw", rank.folder / "packed"
    source.write_text('{"traceEvents": [{}]}')
    fill(rank.folder, 15)
    with pytest.raises(OSError, match="no room left"):
        pack(str(source), str(target), {}, ())
    assert {path.name for path in rank.folder.iterdir()} == {"00003.page", "batches"}


def test_a_profiled_training_is_the_same_to_the_bit(rank):
    def train(profiled):
        torch.manual_seed(1)
        rank.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
        if profiled:
            asked.await_steps(rank.page.steps() + 2, rank.page.steps() + 3)
        rank.steps(4)
        return [p.grad.clone() for p in rank.model.parameters()], torch.get_rng_state()

    asked = Profiler(rank)
    (plain, state), (profiled, other) = train(False), train(True)
    assert all(map(torch.equal, plain, profiled)) and torch.equal(state, other)
    reported, _ = rank.written(asked)
    assert reported["files"]


def test_a_rank_profiles_and_the_script_sees_nothing_of_it(tmp_path):
    source = """
        import torch
        from torch.profiler import profile
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def steps(count):
            for _ in range(count):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
        steps(3)
        with profile() as own:  # begins in the middle of the window
            steps(2)
        assert any(e.key.startswith("Optimizer.step") for e in own.key_averages())
        raise ValueError("after it")
    """
    rank = Rank(tmp_path, source, DISTDBG_PROFILE="2:9")
    (reported,) = rank.said("profile")
    assert (reported["first"], reported["last"], reported["missing"]) == (
        2,
        3,
        "the script's own profiler began in step 4",
    )
    with gzip.open(rank.node_dir / reported["files"][0]["file"]) as file:
        assert json.load(file)[HEADER]["rank"] == 3
    assert rank.err.rstrip().endswith("ValueError: after it"), rank.err
    assert rank.err.startswith("Traceback (most recent call last):"), "neither distdbg nor torch says that it profiles"
    assert {path.name for path in rank.node_dir.iterdir() if "profile" in path.name} == {reported["files"][0]["file"]}
