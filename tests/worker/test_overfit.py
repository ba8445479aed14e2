"""`--overfit-batch` inside a rank, on torch's own loaders: what is repeated, what is not, and what stays as it was."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.overfit import Parameters, Repeating, start

pytestmark = pytest.mark.slow  # torch in this process


class Ears(Bus):
    """A bus that listens to no torch."""

    def _install_later(self, point):
        pass


class Loop:
    """Goes through loaders as hooked ones would tell of it."""

    def __init__(self):
        self.dropped = []
        self.bus = Ears(ImportWatch(lambda *_: None), lambda *what: self.dropped.append(what))
        self.repeating = Repeating(self.bus)

    def through(self, loader, most, *, trains=True):
        taken, iterator = [], iter(loader)
        self.bus.channel("pass")[0](iterator)
        for batch in iterator:
            if not taken:
                self.bus.channel("pass-begins")[0]((iterator, batch))
            taken.append(batch[0].flatten().tolist() if isinstance(batch, (list, tuple)) else batch.flatten().tolist())
            if trains:
                self.repeating.backward()
            if len(taken) == most:
                return taken
        self.bus.channel("data-end")[0](iterator)
        return taken


@pytest.fixture
def loop():
    made = Loop()
    yield made
    assert made.dropped == []


def numbers(count=12, **options):
    return DataLoader(TensorDataset(torch.arange(float(count))), batch_size=2, **options)


def test_nothing_is_repeated_unless_it_was_asked_for(monkeypatch):
    monkeypatch.delenv("DISTDBG_OVERFIT_BATCH", raising=False)
    assert start(None) is None


def test_the_first_batch_comes_again_and_again_across_passes(loop):
    train = numbers(shuffle=True)
    first = loop.through(train, 20)
    assert len(first) == 20
    assert first == [first[0]] * 20
    assert loop.through(train, 20) == first
    assert (loop.repeating.loaders, loop.repeating.repeated) == (1, 39)


def test_a_validation_before_and_after_is_left_alone(loop):
    valid, train = numbers(6), numbers()
    with torch.no_grad():
        assert len(loop.through(valid, 99, trains=False)) == 3
    assert loop.through(numbers(4), 99, trains=False) == [[0.0, 1.0], [2.0, 3.0]]  # to its end, gradients on
    loop.through(train, 8)
    with torch.no_grad():
        assert len(loop.through(valid, 99, trains=False)) == 3
        assert len(loop.through(train, 99, trains=False)) == 6  # the same loader, to measure with


def test_what_turns_out_to_be_no_training_goes_on(loop):
    odd = numbers(400)
    loop.through(odd, 1)
    taken = loop.through(odd, 999, trains=False)
    assert taken[:3] == [[0.0, 1.0]] * 3
    assert taken[-1] == [398.0, 399.0]


def test_a_stream_without_a_length_and_its_workers(loop):
    class Stream(IterableDataset):
        def __iter__(self):
            return (torch.tensor([float(n)]) for n in range(6))

        def __len__(self):
            return 6

    taken = loop.through(DataLoader(Stream(), batch_size=2), 10)
    assert taken == [[0.0, 1.0]] * 10  # and no warning that it gave more than its length: they are errors here


def test_each_is_a_copy_and_no_random_number_is_drawn(loop):
    torch.manual_seed(0)
    iterator = iter(numbers(shuffle=True))
    batch = next(iterator)
    loop.bus.channel("pass-begins")[0]((iterator, batch))
    wanted, state = batch[0].clone(), torch.get_rng_state()
    loop.repeating.backward()
    for _ in range(3):
        again = next(iterator)
        assert torch.equal(again[0], wanted)
        again[0].zero_()
    assert torch.equal(torch.get_rng_state(), state)


def test_parameters_are_classified_by_what_becomes_of_them():
    model = torch.nn.ModuleDict({name: torch.nn.Linear(2, 1, bias=False) for name in
                                 ("used", "free", "idle", "frozen", "alone")})  # fmt: skip
    model["frozen"].requires_grad_(False)
    held = [model[name].weight for name in ("used", "idle", "frozen")]
    teacher = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(held, lr=0.1)
    x = torch.ones(1, 2)
    (model["used"](x) + model["free"](x) + teacher(x).detach()).sum().backward()
    parameters = Parameters()
    parameters.look(optimizer)
    summary = parameters.summary()
    assert summary == {
        "owned": 3, "dropout": 0,
        "without_grad": {"count": 1, "names": ["idle.weight"]},
        "not_owned": {"count": 1, "names": ["free.weight"]},
        "not_owned_without_grad": {"count": 1, "names": ["alone.weight"]},
        "frozen": {"count": 1, "names": ["frozen.weight"]},
    }  # fmt: skip
