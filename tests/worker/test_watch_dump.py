"""`--on-nonfinite dump` and `distdbg replay`: what a real model's bad step leaves, and that it can be run again."""

import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
import torch

from distdbg.cli import run
from distdbg.errors import EvidenceUnreadable, NothingToAnalyse, Refused
from distdbg.launch.replay.apart import replay_apart, replay_report
from distdbg.launch.replay.forward import definitions_of, replay
from distdbg.worker.agent_files import AgentFiles
from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.page import PageWriter
from distdbg.worker.watch.dump import NonfiniteDump
from distdbg.worker.watch.numerics import NumericsWatch
from distdbg.worker.watch.root import RootWatch

pytestmark = pytest.mark.slow  # torch in this process


class Ears(Bus):
    """A bus that listens to no torch."""

    def _install_later(self, point):
        pass


class Rank:
    """What a session is to a watch; `folder` is nonfinite/ as the agent fills it."""

    rank = 0

    def __init__(self, folder):
        (folder / "node").mkdir()
        self.folder = folder / "00000" / "nonfinite"
        self.folder.mkdir(parents=True)
        self.stem, self.reported, self.trouble, self.saves = f"{folder}/node/00000", [], [], []
        self.page = PageWriter(str(folder / "page"), 0, 1)
        self.bus = Ears(ImportWatch(lambda *_: None), lambda *what: self.trouble.append(what))
        self.bus.subscribe("save", self.saves.append)
        self.link = self
        self.watch = NumericsWatch(self, NonfiniteDump(self, RootWatch(self)))

    def fact(self, kind, **fields):
        (self.reported if kind == "guard" else self.trouble).append(fields)
        return True

    def send(self, op, fields, **_how):
        assert op == "nonfinite"
        for entry in fields["files"]:
            os.replace(Path(self.stem).parent / entry["file"], self.folder / entry["name"])
        return True

    def step(self, net, *args, optimizer, **kwargs):
        loss = net(*args, **kwargs)["loss"]

        class Frame:
            f_locals = {"tensors": (loss,)}  # noqa: RUF012

        self.bus.channel("backward")[0](Frame)
        loss.backward()
        self.bus.channel("optimizer")[0](optimizer)
        optimizer.step()
        optimizer.zero_grad()
        self.bus.channel("step")[0](optimizer)


class Net(torch.nn.Module):
    """Its dropout decides whether the logarithm gets a zero: it is the random state that has to come back."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.log = torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), Log()
        self.register_buffer("count", torch.zeros(()), persistent=False)
        self.scale = torch.ones(4)
        self.tied = self.first.weight

    def forward(self, batch, *, names=None):
        hidden = self.drop(torch.ones_like(batch["x"])) if names else self.first(batch["x"]).abs() + 1
        self.dropped = int((hidden == 0).sum())
        return {"loss": self.log(hidden * self.scale).sum() + 0 * self.first.weight.sum(), "extra": None}


class Log(torch.nn.Module):
    def forward(self, x):
        return torch.log(x)


@pytest.fixture
def rank(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)  # a worker of pytest's has none
    made = Rank(tmp_path)
    yield made
    made.watch.end()
    assert made.trouble == []


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def bad_step(rank, net, **kwargs):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rank.watch.model(net)
    rank.step(net, {"x": torch.randn(2, 4)}, optimizer=optimizer)
    batch = {"x": torch.randn(2, 4), "ids": torch.arange(2)}
    rank.step(net, batch, names=["a"], optimizer=optimizer, **kwargs)
    return batch


def test_what_went_in_and_the_model_are_saved_and_run_again_to_the_same_end(rank, net):
    before = [p.detach().clone() for p in net.parameters()]
    batch = bad_step(rank, net)
    (reported,) = rank.reported
    assert reported["dump"] == {
        "files": ["batch.pt", "model.pkl", "state.pt", "script.py", "about.json"],
        "because": {},
    }
    saved = torch.load(rank.folder / "batch.pt", weights_only=True)
    assert torch.equal(saved["args"][0]["x"], batch["x"]) and saved["kwargs"] == {"names": ["a"]}
    state = torch.load(rank.folder / "state.pt", weights_only=True)
    assert {"first.weight", "first.bias", "tied", "count", "(attribute 0)"} == set(state)
    assert torch.isfinite(state["first.weight"]).all() and state["first.weight"].shape == before[0].shape
    found = replay(rank.folder)
    assert found.fields is not None
    assert (reported["made"], reported["module"]) == ("module", ""), "of log nothing was left to be looked at"
    assert (found.fields["made"], found.fields["module"]) == ("module", "log")
    assert found.fields["input"]["zeros"] == net.dropped > 0, "the same units were dropped"
    report = replay_report(found, "about.json")
    assert (report.findings[0].severity, report.unknown) == ("error", ())
    assert rank.saves == [], "no save of ours is heard as the script's"
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_the_watched_training_draws_no_number_and_keeps_one_batch_at_most(rank, net):
    from weakref import ref

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rank.watch.model(net)
    states = torch.get_rng_state()
    x = torch.ones(2, 4)
    held = ref(x)
    net({"x": x})
    del x
    assert held() is not None
    rank.bus.channel("step")[0](optimizer)
    assert held() is None
    assert torch.equal(states, torch.get_rng_state())


def test_a_batch_that_is_not_plain_is_said_and_not_replayed(rank, net):
    class Meta:
        pass

    net.forward = lambda batch, names=None, meta=None: Net.forward(net, batch, names=names)
    bad_step(rank, net, meta=Meta())
    about = json.loads((rank.folder / "about.json").read_text())
    assert about["left_out"] == ["kwargs.meta: Meta"]
    assert "cannot be pickled" in about["because"]["model.pkl"], "forward is a lambda"
    with pytest.raises(Refused, match=r"kwargs\.meta"):
        replay(rank.folder)


def test_without_room_nothing_is_written_and_the_reason_is_reported(rank, net, monkeypatch):
    class Full:
        f_bavail, f_blocks, f_frsize = 1, 4, 4096 >> 6

    monkeypatch.setattr(os, "statvfs", lambda _path: Full)
    bad_step(rank, net)
    because = rank.reported[0]["dump"]["because"]
    assert "MiB left" in because["batch.pt"] and "MiB left" in because["state.pt"] and "model.pkl" in because
    assert not (rank.folder / "batch.pt").exists()
    with pytest.raises(NothingToAnalyse, match="MiB left"):
        replay(rank.folder)


def test_a_file_that_cannot_be_written_leaves_no_half_of_it(rank, net, monkeypatch):
    def broken(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", broken)
    bad_step(rank, net)
    assert "No space left" in rank.reported[0]["dump"]["because"]["batch.pt"]
    assert [p.name for p in Path(rank.stem).parent.iterdir()] == []
    assert AgentFiles(rank, "x").folder == str(Path(rank.stem).parent)


@pytest.fixture
def second(monkeypatch):
    """The rank is not the first of its group of DDP."""
    monkeypatch.setattr("distdbg.worker.watch.dump._first_of_group", lambda _model: 0)


def test_what_all_ranks_see_leaves_the_model_to_the_first_of_them(rank, net, second):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rank.watch.model(net)
    rank.step(net, {"x": torch.full((2, 4), torch.nan)}, optimizer=optimizer)
    (reported,) = rank.reported
    assert reported["made"] == "data" and all(not torch.isfinite(p).all() for p in net.parameters()), (
        "the step was taken"
    )
    assert reported["dump"] == {"files": ["batch.pt", "script.py", "about.json"], "because": {}, "model_of_rank": 0}


def test_what_the_first_rank_may_not_see_at_this_step_is_saved_whole(rank, net, second):
    bad_step(rank, net)
    (reported,) = rank.reported
    assert {"batch.pt", "state.pt", "model.pkl"} <= set(reported["dump"]["files"]) and "model_of_rank" not in reported[
        "dump"
    ]
    assert json.loads((rank.folder / "about.json").read_text())["model_of_rank"] is None
    assert replay(rank.folder).fields is not None


def test_weights_of_another_step_are_not_given_to_a_batch(rank, net):
    bad_step(rank, net)
    batch = rank.folder.parent.parent / "00001" / "nonfinite"
    shutil.copytree(rank.folder, batch)
    (batch / "state.pt").unlink()
    about = json.loads((batch / "about.json").read_text())
    (batch / "about.json").write_text(json.dumps(about | {"rank": 1, "model_of_rank": 0}))
    assert replay(batch).fields is not None
    (rank.folder / "about.json").write_text(json.dumps(about | {"step": about["step"] + 1}))
    with pytest.raises(Refused, match=r"batch is of step 1, .* rank 0 saved, .* at step 2: with other weights"):
        replay(batch)
    (rank.folder / "about.json").unlink()
    with pytest.raises(NothingToAnalyse, match=r"no about\.json"):
        replay(batch)


def test_folders_that_cannot_be_replayed_are_named(tmp_path, rank, net):
    with pytest.raises(NothingToAnalyse, match=r"no about\.json"):
        replay(tmp_path)
    bad_step(rank, net)
    whole = (rank.folder / "state.pt").read_bytes()
    (rank.folder / "state.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EvidenceUnreadable, match=r"state\.pt"):
        replay(rank.folder)
    (rank.folder / "state.pt").unlink()
    os.mkfifo(rank.folder / "state.pt")
    with pytest.raises(EvidenceUnreadable, match=r"state\.pt cannot be read: not a regular file"):
        replay(rank.folder)
    (rank.folder / "state.pt").unlink()
    (rank.folder / "state.pt").write_bytes(whole)
    (rank.folder / "model.pkl").write_bytes(pickle.dumps(Gone()).replace(b"Gone", b"Lost"))
    with pytest.raises(Refused, match="cannot be built here"):
        replay(rank.folder)
    about = json.loads((rank.folder / "about.json").read_text())
    (rank.folder / "about.json").write_text(json.dumps(about | {"model_of_rank": 7}))
    with pytest.raises(NothingToAnalyse, match="rank 7"):
        replay(rank.folder)


class Gone:
    pass


def test_a_script_gives_its_definitions_and_does_not_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from __future__ import annotations\nimport math\ntry:\n    import nothing_of_this_name\n"
        "except ImportError:\n    nothing_of_this_name = None\n"
        "WIDTH, NAMES = 64, {'a': [1]}\nmade = open('made', 'w')\n"
        "class Net:\n    width: Unknown = WIDTH\n    def area(self):\n        return math.pi * helper(self.width)\n"
        "def helper(x):\n    return x * x\nclass Broken(made.__class__):\n    pass\n"
        "if __name__ == '__main__':\n    raise SystemExit(3)\nraise SystemExit(4)\n"
    )
    module = definitions_of(script, "replayed_for_a_test")
    assert module.Net().area() == pytest.approx(3.14159 * 64**2, rel=1e-4)
    assert module.nothing_of_this_name is None
    assert not hasattr(module, "made") and not hasattr(module, "Broken")
    assert not (tmp_path / "made").exists() and not Path("made").exists()


def test_deeply_nested_description_is_unreadable(tmp_path):
    (tmp_path / "about.json").write_text("[" * 100_000)
    with pytest.raises(EvidenceUnreadable, match=r"about\.json cannot be read: it is not JSON"):
        replay(tmp_path)


class Exits(Net):
    def forward(self, batch, *, names=None):
        if os.environ.get("EXITS"):
            print("not in the report")
            os._exit(7)
        return super().forward(batch, names=names)


def test_a_model_that_ends_its_process_ends_no_report(rank, monkeypatch, capfd):
    torch.manual_seed(0)
    bad_step(rank, Exits())
    found = replay_apart(rank.folder)
    assert found.fields is not None and (found.about.rank, found.about.step) == (0, 1)
    monkeypatch.setenv("EXITS", "1")
    with pytest.raises(Refused, match="ended the process that ran it: exit code 7"):
        replay_apart(rank.folder)
    assert run(["replay", "--json", str(rank.folder)]) == 6
    report = json.loads(capfd.readouterr().out)
    assert "exit code 7" in report["unknown"][0]["because"]


@pytest.mark.parametrize("value", [5, "text", [1], {"a": 1}, None, 1e400, -1, True])
def test_fields_of_other_types_count_as_missing(tmp_path, value):
    about = {"schema": "distdbg.nonfinite/1"}
    for name in ("rank", "step", "device", "model", "path", "cwd", "because", "left_out", "model_of_rank", "found"):
        (tmp_path / "about.json").write_text(json.dumps(about | {name: value}))
        with pytest.raises((NothingToAnalyse, Refused)):
            replay(tmp_path)
