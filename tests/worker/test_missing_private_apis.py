"""What happens if a torch does not have a private name that the worker side uses (docs/tested-on.md)."""

import sys
from types import SimpleNamespace

import pytest

from distdbg.worker import recorder
from distdbg.worker.guards.shared.units import holds_unreduced, units_of
from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.memory.snapshots import History

pytestmark = pytest.mark.slow


def test_rank_has_no_recorder_without_worker_server(tmp_path, monkeypatch):
    c10d = pytest.importorskip("torch._C._distributed_c10d")
    monkeypatch.delattr(c10d, "_WorkerServer")
    assert recorder.serve(str(tmp_path / "socket")) is False
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize(
    ("module_name", "owner", "name"),
    [
        ("torch.distributed.fsdp._fully_shard._fsdp_state", "FSDPState", "_root_pre_forward"),
        ("torch.nn.parallel.distributed", "DistributedDataParallel", "_pre_forward"),
    ],
)
def test_missing_hook_is_reported_and_others_are_installed(monkeypatch, module_name, owner, name):
    import importlib

    monkeypatch.delattr(getattr(importlib.import_module(module_name), owner), name)
    failures = []
    bus = Bus(ImportWatch(lambda module, error: failures.append((module, type(error)))), lambda *_: None)
    bus.subscribe("forward", lambda _: None)
    steps = []
    bus.subscribe("step", steps.append)
    assert failures == [(module_name, AttributeError)]
    import torch

    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter], lr=0.1).step()
    assert len(steps) == 1


def test_module_without_fsdp_state_has_no_units():
    module = SimpleNamespace(_fsdp_param_groups=[])
    assert units_of(module) == [] and holds_unreduced(module) is False


def test_torch_that_records_no_allocations_is_not_a_process_without_cuda(monkeypatch):
    cuda = SimpleNamespace(is_available=lambda: True, memory=SimpleNamespace(), _lazy_call=lambda call: call())
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    facts = []
    History(SimpleNamespace(fact=lambda kind, **fields: facts.append((kind, fields)))).begin(print)
    ((kind, fields),) = facts
    assert kind == "memory-history" and not fields["recorded"] and "_record_memory_history" in fields["error"]
