"""The model that nothing wraps: found by what optimizers step and what is called; where it is not sure, none is."""

import copy
import io
from types import SimpleNamespace

import pytest
import torch

from distdbg.worker.hooks import traced_outputs
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.watch import search
from distdbg.worker.watch.search import Search
from tests.worker.test_watch import Ears

pytestmark = pytest.mark.slow  # torch in this process


class Rank:
    """`there` is all that the process holds; what other tests have left behind is none of it."""

    def __init__(self, monkeypatch):
        self.trouble, self.holds, self.found = [], [], []
        self.bus = Ears(ImportWatch(lambda *_: None), lambda *what: self.trouble.append(what))
        self.there, self.compiled, self.looks = [], False, 0
        monkeypatch.setattr(search, "everything", self.everything)
        self.search = Search(SimpleNamespace(bus=self.bus), self.holds.append, self.found.append)

    def everything(self):
        self.looks += 1
        whole = [thing for thing in self.there if isinstance(thing, torch.nn.Module)]
        modules = {id(part): part for thing in whole for part in thing.modules()}
        optimizers = [thing for thing in self.there if isinstance(thing, torch.optim.Optimizer)]
        return list(modules.values()), optimizers, self.compiled

    def hear(self, event, subject=None):
        self.bus.channel(event)[0](subject)


@pytest.fixture
def rank(monkeypatch):
    made = Rank(monkeypatch)
    yield made
    made.search.end()
    assert made.trouble == [] and traced_outputs.began is None


def linear():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))


def sgd(*modules):
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.1)


def hooks(*modules):
    return sum(len(part._forward_pre_hooks) for module in modules for part in module.modules())


class Whole(torch.nn.Module):
    """As LightningModule is: what stands around the model, and may never be called itself."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.net(x)


X = torch.ones(2, 4)


def test_what_all_optimizers_step_is_the_model_once_it_is_called(rank):
    net, teacher = linear(), linear()
    first, second = sgd(net[0]), sgd(net[1])
    rank.there = [net, teacher, copy.deepcopy(net), torch.nn.CrossEntropyLoss(), first, second]
    rank.hear("optimizer", first)
    rank.hear("optimizer", second)
    assert rank.holds == [net] and rank.found == []
    teacher(X)
    net[0](X)
    with torch.no_grad():
        net(X)
    assert rank.found == []
    net(X)
    assert rank.found == [net] and hooks(*rank.there[:3]) == 0
    for _ in range(10):
        rank.hear("optimizer", first)
        net(X)
    assert rank.found == [net] and rank.looks == 1


def test_the_outermost_that_is_called_is_it_and_hears_its_first_forward_with_a_loader(rank):
    net = linear()
    rank.there = [Whole(net=net, metric=torch.nn.MSELoss()), sgd(net)]
    rank.hear("pass")
    begun = []
    rank.search._found = lambda model: setattr(traced_outputs, "began", lambda *call: begun.append((model, *call)))
    net(X)
    assert [(model is net, module is net, args[0] is X) for model, module, args, _ in begun] == [(True, True, True)]
    traced_outputs.began = None


def test_the_whole_is_it_where_the_whole_is_called(rank):
    net = linear()
    whole = Whole(net=net, frozen=torch.nn.Linear(4, 4))
    rank.there = [whole, sgd(net)]
    rank.hear("optimizer", rank.there[1])
    net(X)
    assert rank.found == [], "what is frozen may be called before it"
    whole(X)
    assert rank.found == [whole]


def apart():
    """A generator and its critic, each with its optimizer."""
    one, other = linear(), linear()
    return [one, other, sgd(one), sgd(other)], one


def together():
    """Two that one optimizer steps, and no module is around both."""
    one, other = linear(), linear()
    return [one, other, sgd(one, other)], one


def backbone():
    """The head alone is optimized, and the backbone is called beside it."""
    whole = Whole(net=linear(), head=linear())
    return [whole, sgd(whole.head)], whole.head


def no_module():
    return [linear(), torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])], torch.nn.Identity()


@pytest.mark.parametrize("case", [apart, together, backbone, no_module])
def test_where_it_is_not_sure_none_is_named(rank, case):
    rank.there, called = case()
    for _ in range(3):
        called(X)
        for thing in rank.there:
            if isinstance(thing, torch.optim.Optimizer):
                rank.hear("optimizer", thing)
    assert rank.found == [] and rank.looks == 1


def test_it_is_forgotten_when_another_is_trained_and_kept_when_the_same_is(rank):
    net, later = linear(), linear()
    one, again, other = sgd(net), sgd(net), sgd(later)
    rank.there = [net, one]
    rank.hear("optimizer", one)
    net(X)
    rank.there = [net, again]
    rank.hear("optimizer", again)
    assert rank.found == [net]
    rank.there = [net, again, later, other]
    rank.hear("optimizer", other)
    assert rank.found == [net, None]


def test_whoever_makes_optimizers_without_end_is_not_looked_at_without_end(rank):
    net = linear()
    for _ in range(20):
        rank.there = [net, sgd(net)]
        rank.hear("optimizer", rank.there[1])
        net(X)
    assert rank.found == [net, None] and rank.looks == 8


def test_loaders_before_there_is_an_optimizer_do_not_use_it_up(rank):
    net = linear()
    rank.there = [net]
    for _ in range(20):
        rank.hear("pass")
    rank.there = [net, sgd(net)]
    rank.hear("optimizer", rank.there[1])
    net(X)
    assert rank.found == [net] and rank.looks == 5


def test_no_hook_stays_where_nothing_is_called_or_what_wraps_it_is_heard(rank):
    net = linear()
    rank.there = [net, sgd(net)]
    rank.hear("pass")
    rank.hear("optimizer", rank.there[1])
    assert hooks(net) == 1, "its forward may have been before the hook"
    rank.hear("optimizer", rank.there[1])
    assert hooks(net) == 0
    rank.there = [net, sgd(net)]
    rank.hear("optimizer", rank.there[1])
    assert hooks(net) == 1
    rank.hear("forward", net)
    assert hooks(net) == 0
    rank.hear("optimizer", sgd(net))
    assert rank.looks == 2


def test_a_hook_that_is_taken_off_by_the_hook_before_it_raises_nothing(rank):
    net = linear()
    rank.there = [net, sgd(net)]
    net.register_forward_pre_hook(lambda *_: rank.hear("forward", net))  # as fully_shard's tells of the forward
    rank.hear("optimizer", rank.there[1])
    net(X)
    assert rank.found == [] and hooks(net) == 1


def test_a_model_that_is_saved_meanwhile_holds_nothing_of_ours_and_is_found_later(rank):
    net = linear()
    rank.there = [net, sgd(net)]
    rank.hear("optimizer", rank.there[1])
    rank.hear("save")
    file = io.BytesIO()
    torch.save(net, file)
    assert b"distdbg" not in file.getvalue()
    net(X)
    rank.hear("optimizer", rank.there[1])
    net(X)
    assert rank.found == [net]


def test_what_is_compiled_gets_no_hook(rank):
    net = linear()
    whole = torch.compile(net, backend="eager", fullgraph=True)
    rank.there, rank.compiled = [whole, sgd(net)], True
    rank.hear("optimizer", rank.there[1])
    assert rank.found == [whole] and hooks(whole) == 0
    other = linear()
    rank.there = [other, sgd(other)]  # called within a function that is compiled
    rank.hear("optimizer", rank.there[1])
    assert rank.found == [whole, None] and hooks(other) == 0 and rank.holds[-1] is other


def test_a_hook_does_not_hinder_a_whole_graph(rank):
    net = linear()
    rank.there = [net, sgd(net)]
    rank.hear("optimizer", rank.there[1])
    wanted = net[1](net[0](X))
    compiled = torch.compile(lambda x: net(x) + 0, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), wanted) and rank.found == []
    assert torch.equal(net(X), wanted) and rank.found == [net]
    assert torch.equal(compiled(X), wanted)


def test_everything_there_is_is_seen_and_nothing_is_asked():
    class Shy:
        @property
        def __class__(self):
            raise AssertionError("asked")

    net, shy = linear(), Shy()
    optimizer = sgd(net)
    modules, optimizers, _ = search.everything()
    assert sum(module is net for module in modules) == 1
    assert sum(one is optimizer for one in optimizers) == 1
    compiled = torch.compile(net, backend="eager")
    assert search.everything()[2]
    del shy, compiled
