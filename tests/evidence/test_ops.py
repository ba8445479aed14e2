"""One table knows each operation by every name that torch, gloo and NCCL have for it."""

from __future__ import annotations

import inspect

import pytest

from distdbg.evidence.ops import BATCH, COLLECTIVE, OPERATIONS, RECEIVE, SEND, SETUP, find, is_transfer, of_kind


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("all_reduce", "all_reduce", COLLECTIVE),
        ("nccl:_all_gather_base", "all_gather_into_tensor", COLLECTIVE),
        ("_ALLGATHER_BASE", "all_gather_into_tensor", COLLECTIVE),
        ("nccl:_reduce_scatter_base", "reduce_scatter_tensor", COLLECTIVE),
        ("ALLREDUCE", "all_reduce", COLLECTIVE),
        ("gloo:all_reduce", "all_reduce", COLLECTIVE),
        ("ALLTOALL_BASE", "all_to_all_single", COLLECTIVE),
        ("nccl:send 0->1", "send", SEND),
        ("nccl:recv 1<-0", "recv", RECEIVE),
        ("gloo:recvAnySource", "recv", RECEIVE),
        ("send_object_list", "send_object_list", SEND),
        ("batch_isend_irecv", "batch_isend_irecv", BATCH),
        ("new_group", "new_group", SETUP),
    ],
)
def test_every_spelling_of_an_operation(text, name, kind):
    found = find(text)
    assert (found.name, found.kind) == (name, kind)


@pytest.mark.parametrize("text", ["", "nccl:", "forward", "torch.optim.step", "get_rank"])
def test_what_is_no_operation(text):
    assert find(text) is None and not is_transfer(text)


def test_transfers_are_no_collectives():
    assert {op.name for op in OPERATIONS if op.is_transfer} == of_kind(SEND, RECEIVE, BATCH)
    assert all(is_transfer(name) for name in ("send_object_list", "recv_object_list", "isend", "batch_isend_irecv"))


def test_no_name_stands_for_two_operations():
    names = [spelling for op in OPERATIONS for spelling in {op.name, *op.spellings}]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_names_and_arguments_are_those_of_the_installed_torch():
    from torch.distributed import distributed_c10d as c10d

    asks = ("get_", "is_", "supports")
    public = {n for n in c10d.__all__ if inspect.isfunction(getattr(c10d, n)) and not n.startswith(asks)}
    known = {op.name for op in OPERATIONS}
    no_operations = {"destroy_process_group", "register_torch_backend", "reset_all_reduce"}
    assert {n for n in public if "group" in inspect.signature(getattr(c10d, n)).parameters} - known <= no_operations
    for op in OPERATIONS:
        function = getattr(c10d, op.name, None)
        if function is None:
            continue
        arguments = list(inspect.signature(function).parameters)
        for argument in filter(None, (op.root, op.peer, op.equal)):
            assert argument in arguments, op
        if op.group >= 0:
            assert arguments.index("group") == op.group, op
