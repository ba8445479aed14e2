"""`--watch numerics` inside a rank, on real modules: what it leaves as it was, when it stays silent."""

import copy
import io
import pickle
import threading
from weakref import ref

import pytest
import torch

from distdbg.worker.hooks import traced_outputs
from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.page import PageWriter
from distdbg.worker.watch import Watches, outputs, start
from distdbg.worker.watch.figures import statistics, tensors_in
from distdbg.worker.watch.numerics import NumericsWatch
from distdbg.worker.watch.outputs import origin

pytestmark = pytest.mark.slow  # torch in this process


class Ears(Bus):
    """A bus that listens to no torch."""

    def _install_later(self, point):
        pass


class Rank:
    def __init__(self, folder):
        self.reported, self.dropped = [], []
        self.page = PageWriter(str(folder / "page"), 0, 1)
        self.bus = Ears(ImportWatch(lambda *_: None), lambda *what: self.dropped.append(what))
        self.watch = NumericsWatch(self)

    def fact(self, kind, **fields):
        self.reported.append(fields)
        return True

    def hear(self, event, subject):
        self.bus.channel(event)[0](subject)

    def backward(self, loss):
        class Frame:
            f_locals = {"tensors": (loss,)}  # noqa: RUF012

        self.hear("backward", Frame)


@pytest.fixture
def rank(tmp_path):
    made = Rank(tmp_path)
    yield made
    made.watch.end()
    assert made.dropped == []


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 1))


def test_nothing_is_watched_unless_it_was_asked_for(rank, monkeypatch):
    monkeypatch.delenv("DISTDBG_WATCH", raising=False)
    assert start(rank) is None


def test_a_watched_training_is_the_same_to_the_bit(rank, net):
    def train(model, watch):
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(5):
            loss = torch.nn.functional.dropout(model(torch.randn(8, 4))).square().sum()
            if watch:
                rank.backward(loss)
            loss.backward()
            if watch:
                rank.hear("optimizer", optimizer)
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().clone() for p in model.parameters()], torch.get_rng_state()

    plain = train(copy.deepcopy(net), watch=False)
    rank.watch.model(net)
    watched = train(net, watch=True)
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0], strict=True))
    assert torch.equal(plain[1], watched[1])
    assert rank.reported == []


def test_a_watched_model_can_be_copied_pickled_and_compiled(rank, net):
    rank.watch.model(net)
    x = torch.randn(2, 4)
    wanted = net(x)
    assert torch.equal(copy.deepcopy(net)(x), wanted)
    assert torch.equal(pickle.loads(pickle.dumps(net))(x), wanted)

    @torch.compile(backend="eager", fullgraph=True)
    def compiled(batch):
        return net(batch) + 0

    outputs.forget()
    assert torch.equal(compiled(x), wanted)
    assert outputs.made() == []


def test_a_model_that_is_saved_whole_holds_nothing_of_ours(rank, net):
    rank.watch.model(net)
    rank.hear("save", None)
    file = io.BytesIO()
    torch.save(net, file)
    assert b"distdbg" not in file.getvalue()
    rank.hear("forward", net)
    net(torch.randn(2, 4))
    assert len(outputs.made()) == 4


def hooks(net):
    return sum(len(module._forward_hooks) for module in net.modules())


def test_after_a_save_the_hooks_are_back_without_any_forward_that_is_reported(rank, net):
    rank.watch.model(net)
    rank.hear("save", None)
    rank.hear("save", None)
    rank.hear("save-end", None)
    assert hooks(net) == 0, "that was a save within the save"
    rank.hear("save-end", None)
    assert hooks(net) == 4
    rank.hear("save", None)  # which raises
    rank.backward(net(torch.randn(2, 4)).sum())
    assert hooks(net) == 4
    saves = threading.Thread(target=lambda: (rank.hear("save", None), rank.hear("save-end", None)))
    saves.start()
    saves.join()
    assert hooks(net) == 0, "another thread puts none in: the model may be in its forward"
    rank.backward(net(torch.randn(2, 4)).sum())
    assert hooks(net) == 4
    rank.watch.end()
    rank.hear("save-end", None)
    rank.watch.model(net)
    assert hooks(net) == 0


def test_hooks_that_are_taken_off_by_the_hook_before_them_raise_nothing(rank, net):
    net[1].register_forward_hook(lambda *_: rank.hear("save", None))
    rank.watch.model(net)
    net(torch.randn(2, 4))
    assert [call.name for call in outputs.made()] == ["0"] and hooks(net) == 1


class LateStandIn:
    """Gives the figure that was sent before, as one that comes from a GPU."""

    def __init__(self):
        self.sent = 0.0

    def swap(self, figure):
        before, self.sent = self.sent, figure
        return before


def test_off_the_cpu_hooks_stand_only_from_a_bad_loss_to_the_next_good_one(rank, net):
    rank.watch.model(net.to("meta"))
    rank.watch._loss = loss = LateStandIn()
    scaled = net(torch.ones(2, 4, device="meta")).sum()
    for _ in range(3):
        rank.backward(scaled)
        assert hooks(net) == 0
        loss.sent = float("inf")
        rank.backward(scaled)
        assert hooks(net) == 4
        rank.backward(torch.tensor(1.0, requires_grad=True))  # now it is read at once
        loss.sent = 0.0
    assert hooks(net) == 0 and rank.reported == []


def test_no_tensor_is_kept_alive(rank, net):
    rank.watch.model(net)
    made = ref(net(torch.randn(2, 4)))
    assert made() is None
    assert len(traced_outputs.calls) == 4
    with torch.no_grad():
        net(torch.randn(2, 4))
    assert len(traced_outputs.calls) == 4


def test_a_skipped_step_is_nothing_and_a_taken_one_is_reported_once(rank, net):
    rank.watch.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x, take, skip=False):
        loss = net(x).sum()
        rank.backward(loss)
        loss.backward()
        if take:
            rank.hear("optimizer", optimizer)
            if not skip:
                optimizer.step()
            rank.hear("step", optimizer)
        optimizer.zero_grad()

    bad = torch.full((2, 4), float("nan"))
    step(bad, take=False)
    step(torch.randn(2, 4), take=True)
    assert rank.reported == []
    optimizer.found_inf = torch.ones(1)
    step(bad, take=True, skip=True)
    del optimizer.found_inf
    assert rank.reported == []
    step(bad, take=True, skip=True)
    assert rank.reported == [], "the optimizer left it out by itself"
    step(torch.randn(2, 4), take=True)
    step(bad, take=True)
    step(bad, take=True)
    (reported,) = rank.reported
    assert (reported["made"], reported["stepped"], reported["input"]["nan"]) == ("data", True, 8)


def test_weights_that_were_bad_before_are_said_to_be(rank, net):
    rank.watch.model(net)
    with torch.no_grad():
        net[2].bias.fill_(float("inf"))
    output = net(torch.randn(2, 4))
    rank.backward(output.sum())
    rank.watch.finish(failed=True)
    (reported,) = rank.reported
    assert (reported["module"], reported["bad_weights"], reported["bad_weight_names"]) == ("2", 1, ["2.bias"])
    assert reported["stepped"] is False


def test_without_a_model_the_reason_is_said(rank, net):
    rank.backward((net(torch.randn(2, 4)) / 0).sum())
    rank.watch.finish(failed=True)
    assert "distdbg.watch(model)" in rank.reported[0]["because"]


def test_figures_count_what_is_not_finite():
    reported = statistics(torch.tensor([[1.0, float("nan"), float("inf")], [0.0, -float("inf"), 3.0]]))
    assert reported == {"shape": [2, 3], "dtype": "float32", "count": 6, "nan": 1, "inf": 1, "neginf": 1, "zeros": 1,
                    "min": 0.0, "max": 3.0, "mean": pytest.approx(4 / 3)}  # fmt: skip
    assert len(tensors_in({"a": [torch.ones(1), torch.ones(1, dtype=torch.long)], "b": (torch.ones(2),)})) == 2
    assert origin([])["made"] == "unknown"


def test_a_level_that_cannot_be_begun_costs_the_others_nothing(rank, net, monkeypatch):
    watches = Watches(rank)
    monkeypatch.setattr("distdbg.worker.watch.gradients.GradientWatch.__init__", lambda *_: 1 / 0)
    assert start(rank, watches, ["gradients", "numerics", "no such"]) is watches
    watches.model("no module")
    assert hooks(net) == 0
    watches.model(net)
    assert hooks(net) == 4
    assert [reported["watch"] for reported in rank.reported] == ["gradients", "model"]
    watches.end()
    assert hooks(net) == 0


def test_a_level_that_begins_later_knows_the_model(rank, net):
    watches = start(rank, None, ["gradients"])
    watches.model(net)
    start(rank, watches, ["numerics", "gradients"])
    assert hooks(net) == 4
    watches.end()
