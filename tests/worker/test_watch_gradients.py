"""`--watch gradients` inside a rank, on real modules: figures that are torch's own, at the steps that are due."""

import copy

import pytest
import torch

from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.page import PageWriter
from distdbg.worker.watch import gradients
from distdbg.worker.watch.gradients import GradientWatch

pytestmark = pytest.mark.slow  # torch in this process


class Ears(Bus):
    """A bus that listens to no torch."""

    def _install_later(self, point):
        pass


class Rank:
    """What a session is to a watch; `lines` are those of gradients.jsonl."""

    rank = 0

    def __init__(self, folder):
        self.stem = f"{folder}/00000"
        self.reported, self.lines, self.dropped = [], [], []
        self.page = PageWriter(str(folder / "page"), 0, 1)
        self.bus = Ears(ImportWatch(lambda *_: None), lambda *what: self.dropped.append(what))
        self.link = self
        self.watch = GradientWatch(self)

    def fact(self, kind, **fields):
        self.reported.append({"kind": kind, **fields})
        return True

    def send(self, op, fields, **_how):
        self.lines.append(fields)
        return True

    def hear(self, event, subject):
        self.bus.channel(event)[0](subject)


@pytest.fixture
def rank(tmp_path, monkeypatch):
    monkeypatch.setattr(gradients, "_SHARE", 0)  # samples as often as steps allow, however slow this machine is
    made = Rank(tmp_path)
    yield made
    made.watch.end()
    assert made.dropped == []


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))


def backward(net, optimizer=None):
    if optimizer is not None:
        optimizer.zero_grad()
    net(torch.randn(8, 4)).square().sum().backward()


def test_the_figures_are_torchs_own_by_layer_in_the_models_order(rank, net):
    # as scripts do it: what is decayed and what is not are two groups
    optimizer = torch.optim.SGD([{"params": [net[2].bias, net[0].bias]}, {"params": [net[2].weight, net[0].weight]}])
    backward(net)
    with torch.no_grad():
        net[0].weight.grad[:16] = 0
    rank.watch.model(net)
    rank.hear("optimizer", optimizer)
    (table,), (line,) = rank.reported, rank.lines
    assert (table["layers"], table["kinds"], table["rows"]) == (["0", "2"], ["Linear", "Linear"], {"0": 64})
    for n, layer in enumerate((net[0], net[2])):
        both = torch.cat([layer.weight.grad.flatten(), layer.bias.grad])
        weights = torch.cat([layer.weight.flatten(), layer.bias])
        assert line["gradient"][n] == pytest.approx(float(both.norm()), rel=1e-3)
        assert line["weight"][n] == pytest.approx(float(weights.detach().norm()), rel=1e-3)
        assert line["zeros"][n] == pytest.approx(float((both == 0).float().mean()), abs=1e-4)
    every = torch.cat([p.grad.flatten() for p in net.parameters()])
    assert line["total"] == pytest.approx(float(every.norm()), rel=1e-3)
    assert (line["step"], line["optimizer"]) == (1, 0)


def test_a_watched_training_is_the_same_to_the_bit(rank, net):
    def train(model, watched):
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(21):
            backward(torch.nn.Sequential(model, torch.nn.Dropout()), optimizer)
            if watched:
                rank.hear("optimizer", optimizer)
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()], torch.get_rng_state()

    plain = train(copy.deepcopy(net), watched=False)
    rank.watch.model(net)
    watched = train(net, watched=True)
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0], strict=True))
    assert torch.equal(plain[1], watched[1])
    assert [line["samples"] for line in rank.lines] == [1, 2, 3], "steps 1, 11 and 21"


def test_each_optimizer_has_layers_and_samples_of_its_own(rank, net):
    other = torch.nn.Linear(4, 2)
    one, two = torch.optim.SGD(net.parameters()), torch.optim.Adam(other.parameters())
    for step in range(11):
        backward(net, one)
        rank.watch.model(net)
        rank.hear("optimizer", one)
        if step % 2:
            backward(other, two)
            rank.watch.model(other)
            rank.hear("optimizer", two)
    assert [(t["optimizer"], t["of"], t["layers"]) for t in rank.reported] == [
        (0, "SGD", ["0", "2"]),
        (1, "Adam", [""]),
    ]
    assert [line["optimizer"] for line in rank.lines] == [0, 1, 0]


def test_a_model_and_what_stands_around_it_are_one(rank, net):
    optimizer = torch.optim.SGD(net.parameters())
    backward(net)
    whole = torch.nn.Sequential(net)
    rank.watch.model(whole)
    rank.watch.model(net)
    rank.hear("optimizer", optimizer)
    assert rank.reported[0]["layers"] == ["0", "2"]


def test_rows_without_any_gradient_are_counted_until_they_had_one(rank, net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    rank.watch.model(net)
    with torch.no_grad():
        net[0].bias[:40] = -100.0
    backward(net, optimizer)
    rank.hear("optimizer", optimizer)
    first = rank.lines[-1]["dead"]["0"]
    assert first >= 40
    for _ in range(10):
        backward(net, optimizer)
        rank.hear("optimizer", optimizer)
    assert 40 <= rank.lines[-1]["dead"]["0"] <= first
    with torch.no_grad():
        net[0].bias[:40] = 1.0
    for _ in range(10):
        backward(net, optimizer)
        rank.hear("optimizer", optimizer)
    assert rank.lines[-1]["dead"] == {}


def test_embeddings_shared_weights_and_small_layers_have_no_units(rank):
    words, hidden, few = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 100), torch.nn.Linear(100, 8)
    head = torch.nn.Linear(8, 100, bias=False)
    head.weight = words.weight
    net = torch.nn.Sequential(words, hidden, few, head, torch.nn.Linear(100, 64))
    optimizer = torch.optim.SGD(net.parameters())
    net(torch.arange(3)).sum().backward()
    rank.watch.model(net)
    rank.hear("optimizer", optimizer)
    (table,) = rank.reported
    assert table["layers"] == ["0", "1", "2", "4"]
    assert table["rows"] == {"1": 100}


def test_what_has_no_gradient_or_a_sparse_one_is_left_out(rank):
    net = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(net.parameters())
    net[1](net[0](torch.arange(2))).sum().backward()
    rank.watch.model(net)
    rank.hear("optimizer", optimizer)
    (line,) = rank.lines
    assert (line["gradient"][0], line["gradient"][2], line["zeros"][2]) == (None, None, None)
    assert line["gradient"][1] > 0


def test_a_scalers_scale_is_taken_out_and_a_step_it_leaves_out_is_none(rank, net):
    optimizer = torch.optim.SGD(net.parameters())
    backward(net)
    rank.watch.model(net)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
    rank.hear("optimizer", optimizer)
    every = torch.cat([p.grad.flatten() for p in net.parameters()])
    assert rank.lines[0]["total"] == pytest.approx(float(every.norm()) / 4, rel=1e-3)
    optimizer.found_inf = torch.tensor(1.0)
    for _ in range(10):
        rank.hear("optimizer", optimizer)
    assert len(rank.lines) == 1


def test_half_precision_does_not_overflow_and_double_is_taken(rank):
    for kind in (torch.float16, torch.float64):
        layer = torch.nn.Linear(4, 4, dtype=kind)
        optimizer = torch.optim.SGD(layer.parameters())
        layer.weight.grad = torch.full((4, 4), 6e4, dtype=kind)
        rank.hear("optimizer", optimizer)
        assert rank.lines[-1]["total"] == pytest.approx(2.4e5, rel=1e-3)
    assert rank.reported[0]["layers"] == ["parameter 0", "parameter 1"], "no model was seen"


def test_parameters_that_change_begin_a_new_table_and_lines_thin_out(rank, net, monkeypatch):
    optimizer = torch.optim.SGD(net.parameters())
    backward(net)
    rank.watch.model(net)
    rank.hear("optimizer", optimizer)
    net[0].weight.requires_grad_(False)
    monkeypatch.setattr(gradients, "_DOUBLES_AFTER", 100)
    for _ in range(110):
        rank.hear("optimizer", optimizer)
    assert [t["table"] for t in rank.reported] == [0, 1]
    assert rank.reported[1]["layers"] == ["0", "2"]
    assert len(rank.lines) == 5, "at 1, 11, 21, 41 and 81: each line is full, and doubles the distance"


def test_a_fact_that_was_dropped_is_reported_at_the_next_sample(rank, net, monkeypatch):
    optimizer = torch.optim.SGD(net.parameters())
    backward(net)
    with monkeypatch.context() as patch:
        patch.setattr(rank, "fact", lambda *_, **__: False)
        rank.hear("optimizer", optimizer)
    assert rank.lines == []
    for _ in range(10):
        rank.hear("optimizer", optimizer)
    assert len(rank.reported) == len(rank.lines) == 1
