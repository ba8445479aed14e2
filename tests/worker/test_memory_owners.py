"""Names for a snapshot's addresses, out of real modules and optimizers; on the CPU, where addresses are as good."""

import gc
import gzip
import pickle
import warnings
import weakref

import pytest
import torch

from distdbg.evidence.memory.owners import KEY, read_owners
from distdbg.worker.memory import owners
from distdbg.worker.memory.snapshots import SnapshotWriter
from tests.worker.test_memory import FakeSession, cuda, session  # noqa: F401

pytestmark = pytest.mark.slow  # torch in this process


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.second(torch.relu(self.first(x))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture
def net():
    gc.collect()  # nothing of other tests' models may be reported
    net = Net()
    net.optimizer = [torch.optim.AdamW(net.parameters())]
    net(torch.randn(4, 8)).sum().backward()
    net.optimizer[0].step()
    return net


def named(reported, *tensors):
    known = {address: (kind, name) for _, address, _, kind, name in reported["blocks"]}
    return [known.get(t.untyped_storage().data_ptr()) for t in tensors]


def of(net, reported):
    """Without what stands before the names where this process has other models, too."""
    return [found and (found[0], found[1].replace("Net.", "")) for found in named(reported, *net)]


def test_each_tensor_has_its_kind_and_its_name(net):
    reported = owners.owners("cpu")
    weight, state = net.layers[1].first.weight, net.optimizer[0].state[net.head.bias]
    loose = torch.ones(5)
    assert of([weight, weight.grad, net.layers[2].norm.running_var, state["exp_avg_sq"], loose], reported) == [
        ("parameters", "layers.1.first.weight"), ("gradients", "layers.1.first.weight"),
        ("buffers", "layers.2.norm.running_var"), ("optimizer state", "exp_avg_sq of head.bias"), None,
    ]  # fmt: skip
    sizes = {address: size for _, address, size, _, _ in reported["blocks"]}
    assert sizes[weight.untyped_storage().data_ptr()] == 4 * 64
    assert reported["left_out"] == 0 and not any(owners.owners("cuda")["blocks"])


def test_a_frame_in_a_forward_has_its_module(net):
    read = read_owners(owners.owners("cpu"))
    block = (__file__, Block.forward.__code__.co_firstlineno + 1, "forward")
    whole = (__file__, Net.forward.__code__.co_firstlineno + 2, "forward")
    linear = torch.nn.Linear.forward.__code__
    inner = (linear.co_filename, linear.co_firstlineno + 1, "forward")
    assert read.module_of([block, whole]).removeprefix("Net.") == "layers.*"
    assert read.module_of([inner, block, whole]).removeprefix("Net.") == "layers.*: Linear"
    assert read.module_of([(__file__, 1, "step")]) == ""


def test_gradients_in_one_bucket_are_named_by_the_first(net):
    bucket = torch.zeros(8 * 8 + 8)
    first = net.layers[0].first
    first.weight.grad, first.bias.grad = bucket[:64].view(8, 8), bucket[64:]
    ((kind, name),) = of([bucket], owners.owners("cpu"))
    assert (kind, name) == ("gradients", "layers.0.first.weight and 1 more in one block")


def test_nothing_is_kept_changed_or_said(net):
    before = [p.detach().clone() for p in net.parameters()]
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        owners.owners("cpu")
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    seen = weakref.ref(net.head.weight)
    net.optimizer.clear()
    net.head = None
    gc.collect()
    assert seen() is None


def test_they_stand_in_the_snapshot_and_one_without_them_is_better_than_none(session, cuda, monkeypatch, tmp_path):  # noqa: F811
    cuda.begin()
    SnapshotWriter(session, None).take("step")
    monkeypatch.setattr(owners, "owners", lambda **_: 1 / 0)
    SnapshotWriter(session, None).take("asked")
    files = [reported["files"][0]["file"] for reported in session.said("snapshot")]
    written = [pickle.loads(gzip.decompress((tmp_path / file).read_bytes())) for file in files]
    assert written[0][KEY]["schema"] == "distdbg.owners/1" and read_owners(written[0][KEY]) is not None
    assert "ZeroDivisionError" in written[1][KEY]["because"] and read_owners(written[1][KEY]) is None
    assert all(state["segments"] for state in written)
