"""The operations of torch.distributed: the only table of their names, and of what each asks of the ranks.

An operation has one name here, Python's, and other spellings elsewhere: torch's flight recorder and profiler write
`nccl:_all_gather_base`, the watchdog `_ALLGATHER_BASE`. `find(text)` knows all of them. Ranks load this module, so it
imports nothing.
"""

from __future__ import annotations

#: every rank of the group calls it, one sends to another, one receives from another, several of these at once,
#: a process group is made
COLLECTIVE, SEND, RECEIVE, BATCH, SETUP = "collective", "send", "receive", "batch", "set-up"

#: Backends of NCCL from torch 2.15 on; each has a flight recorder of its own, which torch dumps by this name.
RECORDER_BACKENDS = ("nccl2", "nccl-lazy")


class Operation:
    """`root` and `peer` name the argument that holds a rank, `equal` the one whose size must agree on all ranks.

    `group` is the position of the argument `group`, -1 where there is none; `equal_inputs`: the recorder's input sizes
    must agree; `of_objects`: it pickles, and calls operations of tensors that count by themselves; `only_torchs`: no
    other library has a function of that name; `recorded` is the name that the recorder has for it, where that is
    another operation's.
    """

    __slots__ = (
        "equal",
        "equal_inputs",
        "group",
        "kind",
        "name",
        "of_objects",
        "only_torchs",
        "peer",
        "recorded",
        "root",
        "spellings",
    )

    def __init__(
        self,
        name: str,
        kind: str = COLLECTIVE,
        *,
        spellings: tuple[str, ...] = (),
        root: str = "",
        peer: str = "",
        equal: str = "",
        group: int = -1,
        equal_inputs: bool = False,
        of_objects: bool = False,
        only_torchs: bool = False,
        recorded: str = "",
    ) -> None:
        self.name, self.kind, self.spellings, self.recorded = name, kind, spellings, recorded or name
        self.root, self.peer, self.equal, self.group = root, peer, equal, group
        self.equal_inputs, self.of_objects, self.only_torchs = equal_inputs, of_objects, only_torchs

    @property
    def is_transfer(self) -> bool:
        """Between two ranks; the other ranks of the group need not call it."""
        return self.kind in (SEND, RECEIVE, BATCH)

    def __repr__(self) -> str:
        return f"Operation({self.name!r}, {self.kind!r})"


#: Arguments and positions as in torch/distributed/distributed_c10d.py, spellings as in ProcessGroupNCCL.cpp,
#: ProcessGroupGloo.cpp and Work.cpp (opTypeToString). NCCL gathers parts of different sizes, too, but their sum is the
#: same for all.
OPERATIONS = (
    Operation("all_reduce", spellings=("allreduce", "sparse_all_reduce", "_allreduce_sparse"), equal="tensor", group=2,
              equal_inputs=True, only_torchs=True),
    Operation("all_reduce_coalesced", spellings=("allreduce_coalesced",), group=2),
    Operation("broadcast", spellings=("_broadcast_oop",), root="src", equal="tensor", group=2, equal_inputs=True),
    Operation("reduce", spellings=("_reduce_oop",), root="dst", equal="tensor", group=3, equal_inputs=True),
    Operation("gather", root="dst", equal="tensor", group=3, equal_inputs=True),
    Operation("scatter", root="src", group=3),
    Operation("all_gather", spellings=("allgather",), equal="tensor_list", group=2, equal_inputs=True),
    Operation("all_gather_into_tensor", spellings=("_all_gather_base", "_allgather_base"), equal="input_tensor",
              group=2, equal_inputs=True, only_torchs=True),
    Operation("all_gather_single", equal="input_tensor", group=2, only_torchs=True, recorded="all_gather_into_tensor"),
    Operation("all_gather_coalesced", spellings=("allgather_coalesced",), group=2),
    Operation("all_gather_into_tensor_coalesced", spellings=("allgather_into_tensor_coalesced",), group=2,
              equal_inputs=True),
    Operation("reduce_scatter", equal="input_list", group=3),
    Operation("reduce_scatter_tensor", spellings=("_reduce_scatter_base",), equal="output", group=3, equal_inputs=True,
              only_torchs=True),
    Operation("reduce_scatter_single", equal="output", group=3, only_torchs=True, recorded="reduce_scatter_tensor"),
    Operation("reduce_scatter_tensor_coalesced", group=3, equal_inputs=True),
    Operation("all_to_all", spellings=("alltoall",), group=2),
    Operation("all_to_all_single", spellings=("alltoall_base", "all_to_allv"), group=4),
    Operation("barrier", group=0),
    Operation("monitored_barrier", group=0, only_torchs=True),
    Operation("all_gather_object", group=2, of_objects=True, only_torchs=True),
    Operation("broadcast_object_list", root="src", group=2, of_objects=True, only_torchs=True),
    Operation("gather_object", root="dst", group=3, of_objects=True),
    Operation("scatter_object_list", root="src", group=3, of_objects=True),
    Operation("coalesced"),
    Operation("send", SEND, peer="dst", group=2),
    Operation("isend", SEND, peer="dst", group=2),
    Operation("send_object_list", SEND, peer="dst", group=2, of_objects=True),
    Operation("recv", RECEIVE, spellings=("recvAnySource", "recvanysource"), peer="src", group=2),
    Operation("irecv", RECEIVE, peer="src", group=2),
    Operation("recv_object_list", RECEIVE, peer="src", group=2, of_objects=True),
    Operation("batch_isend_irecv", BATCH),
    Operation("init_process_group", SETUP),
    Operation("new_group", SETUP, spellings=("_new_group_with_tag",)),
    Operation("new_subgroups", SETUP, group=1),
    Operation("new_subgroups_by_enumeration", SETUP),
    Operation("split_group", SETUP),
    Operation("shrink_group", SETUP, group=1),
)  # fmt: skip
_BY_NAME = {spelling: op for op in OPERATIONS for spelling in (op.name, *op.spellings)}


def find(text: str) -> Operation | None:
    """The operation that `all_reduce`, `nccl:_all_gather_base`, `ALLREDUCE` or `gloo:recv 0<-1` names; else None."""
    words = text.rpartition(":")[2].split()
    if not words:
        return None
    return _BY_NAME.get(words[0]) or _BY_NAME.get(words[0].lower())


def is_recorded_as(called: str, recorded: str) -> bool:
    """Whether the function `called` may have begun what a recorder has as `recorded`."""
    function, operation = find(called), find(recorded)
    return function is operation or (function is not None and operation is not None and
                                     function.recorded == operation.name)  # fmt: skip


def is_transfer(name: str) -> bool:
    found = find(name)
    return found is not None and found.is_transfer


def of_kind(*kinds: str) -> frozenset[str]:
    """Python's names of all operations of these kinds."""
    return frozenset(op.name for op in OPERATIONS if op.kind in kinds)
