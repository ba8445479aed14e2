"""Process groups of which only some members are processes, and the groups that a job forms.

GPU_BOX_REAL names the ranks that are processes, where not all are: each process group tells NCCL which of its members
these are, in a word of its configuration. GPU_BOX_GROUPS is a file for the groups that the job forms, and for those in
which something is sent; the process that writes it ends at its first backward pass, or before it receives something.

build.py puts this file beside gpu_box_shadow.py.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

#: Keys of NCCL's identifiers in a group's store: one for each device and each new attempt.
_MOST_IDENTIFIERS = 4
_IDENTIFIER_BYTES = 128


def begin() -> None:
    if real := os.environ.get("GPU_BOX_REAL"):
        _stand_in_for_others({int(rank) for rank in real.split(",")})
    if path := os.environ.get("GPU_BOX_GROUPS"):
        _write_groups(Path(path))


def replace(function: Any, replacement: Any) -> None:
    """Replace a function of torch.distributed under each name that its modules have imported it as."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch.distributed"):
            for name in [name for name, value in vars(module).items() if value is function]:
                setattr(module, name, replacement)


def _stand_in_for_others(real: set[int]) -> None:
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    backend = c10d.ProcessGroupNCCL
    make = backend.__init__
    library = ctypes.CDLL("libgpubox.so")
    members: dict[str, list[int]] = {}  # of each group those that are processes, by their ranks in it

    def tell(options: Any, name: str, ranks: Sequence[int]) -> list[int]:
        there = members[name] = [place for place, member in enumerate(ranks) if member in real]
        options.config.net_name = f"box:{len(ranks)}:{','.join(map(str, there))}"
        return there

    def init(self: Any, store: Any, rank: int, size: int, options: Any = None, **more: Any) -> None:
        if not isinstance(options, backend.Options):
            make(self, store, rank, size, *([] if options is None else [options]), **more)
            return
        there = tell(options, options.group_name, list(options.global_ranks_in_group) or range(size))
        if len(there) < size:
            # The first member makes the identifier; of a transfer between two ranks the lower one.
            keys = [] if there[0] == 0 else [str(number) for number in range(_MOST_IDENTIFIERS)]
            keys += [f"{other}:{rank}" for other in range(rank) if other not in there]
            for key in keys:
                name = f"comm-{options.group_name}-{there[0]}-{key.replace(':', '-')}"
                store.compare_set(key, "", name.ljust(_IDENTIFIER_BYTES, "\0"))
        make(self, store, rank, size, options, **more)

    def with_peer(transfer: Callable[..., Any]) -> Callable[..., Any]:
        """Of a group: torch makes a communicator of two for it, and NCCL asks whether the other one is there."""

        @functools.wraps(transfer)
        def call(self: Any, tensors: Any, peer: int, *args: Any, **kwargs: Any) -> Any:
            library.gpuBoxPeerIsAbsent(int(peer not in members.get(self.group_name, [peer])))
            try:
                return transfer(self, tensors, peer, *args, **kwargs)
            finally:
                library.gpuBoxPeerIsAbsent(0)

        return call

    split = c10d.ProcessGroup.split_group

    def split_group(self: Any, ranks: list[int], *args: Any, **kwargs: Any) -> Any:
        if isinstance(options := kwargs.get("opts"), backend.Options):
            whole = c10d.get_process_group_ranks(self)
            tell(options, kwargs.get("group_name", ""), [whole[rank] for rank in ranks])
        return split(self, ranks, *args, **kwargs)

    backend.__init__, c10d.ProcessGroup.split_group = init, split_group
    _exchange_objects(c10d, real)
    _connect_real_members(c10d, members, real)
    c10d.ProcessGroup.send, c10d.ProcessGroup.recv = map(with_peer, (c10d.ProcessGroup.send, c10d.ProcessGroup.recv))


def _connect_real_members(c10d: Any, members: dict[str, list[int]], real: set[int]) -> None:
    """A group of gloo is made of the members that are processes, and has its own ranks for them. What works: barrier,
    all_reduce, broadcast and all_gather; objects go over NCCL where the group has it."""
    backend, group = c10d.ProcessGroupGloo, c10d.ProcessGroup
    make, new, device_of = backend.__init__, c10d._new_process_group_helper, c10d._get_object_coll_device
    broadcast, allgather = group.broadcast, group.allgather
    ranks: list[Sequence[int]] = []

    def new_group(size: int, rank: int, of: Any, *args: Any, **kwargs: Any) -> Any:
        ranks[:] = [list(of) or range(size)]
        name = kwargs.get("group_name", "")
        members[name] = [place for place, member in enumerate(ranks[0]) if member in real]
        return new(size, rank, of, *args, **kwargs)

    def init(self: Any, store: Any, rank: int, size: int, *args: Any, **kwargs: Any) -> None:
        there = [place for place, member in enumerate(ranks[0] if ranks else range(size)) if member in real]
        make(self, store, there.index(rank), len(there), *args, **kwargs)

    def on_cpu(self: Any, tensors: Any) -> list[int] | None:
        there = members.get(self.group_name)
        return there if there and len(there) < self.size() and tensors[0].device.type == "cpu" else None

    def broadcast_among(self: Any, tensors: Any, options: Any, *args: Any) -> Any:
        if (there := on_cpu(self, tensors)) is not None:
            options.rootRank = there.index(options.rootRank) if options.rootRank in there else 0
        return broadcast(self, tensors, options, *args)

    def allgather_among(self: Any, outputs: Any, inputs: Any, *args: Any) -> Any:
        if (there := on_cpu(self, inputs)) is None:
            return allgather(self, outputs, inputs, *args)
        work = allgather(self, [[outputs[0][place] for place in there]], inputs, *args)
        work.wait()
        for place, output in enumerate(outputs[0]):
            if place not in there:
                output.copy_(outputs[0][there[0]])
        return work

    def device(of: Any = None) -> Any:
        types = {str(one) for one in (of or c10d._get_default_group())._device_types}
        return "cuda" if {"cpu", "cuda"} <= types else device_of(of)

    backend.__init__, c10d._new_process_group_helper, c10d._get_object_coll_device = init, new_group, device
    group.broadcast, group.allgather = broadcast_among, allgather_among


def _exchange_objects(c10d: Any, real: set[int]) -> None:
    """A rank that gathers objects receives from each of the others, and one that scatters sends to each: those that are
    no processes have nothing to send. In collectives of all they do as the first of the others does."""

    def gather_object(
        obj: Any, object_gather_list: Any = None, dst: Any = None, group: Any = None, group_dst: Any = None
    ) -> None:
        if c10d._rank_not_in_group(group):
            return
        everything = [None] * c10d.get_world_size(group)
        c10d.all_gather_object(everything, obj, group=group)
        if object_gather_list is not None and c10d.get_rank(group) == _root(c10d, dst, group, group_dst):
            object_gather_list[:] = everything
        # DCP compares the plans of all ranks, and has some of them twice.
        planner: Any = sys.modules.get("torch.distributed.checkpoint.default_planner")
        if planner is not None:
            lists = "list" in str(planner._validate_global_plan.__annotations__.get("return"))
            planner._validate_global_plan = _nothing_wrong if lists else _right

    def scatter_object_list(
        scatter_object_output_list: Any, scatter_object_input_list: Any = None, src: Any = None, group: Any = None,
        group_src: Any = None,
    ) -> None:  # fmt: skip
        if c10d._rank_not_in_group(group):
            return
        root, rank = _root(c10d, src, group, group_src), c10d.get_rank(group)
        everything = list(scatter_object_input_list) if rank == root else [None] * c10d.get_world_size(group)
        c10d.broadcast_object_list(everything, group=group, group_src=root)
        scatter_object_output_list[0] = everything[rank]

    def recv_object_list(*args: Any, **kwargs: Any) -> Any:
        named = inspect.signature(receive).bind(*args, **kwargs).arguments
        source, in_group = named.get("src"), named.get("group_src")
        if in_group is not None:
            source = c10d.get_global_rank(named.get("group") or c10d._get_default_group(), in_group)
        if source is not None and source not in real:
            raise RuntimeError(f"rank {source} is not run and sends no objects: name it, too, with --ranks")
        return receive(*args, **kwargs)

    receive = c10d.recv_object_list
    for function in (gather_object, scatter_object_list, recv_object_list):
        original = getattr(c10d, function.__name__)
        replace(original, functools.wraps(original)(function))


def _nothing_wrong(*_: object) -> list[str]:  # the next gather_object reads this type
    return []


def _right(*_: object) -> bool:
    return True


def _root(c10d: Any, named: int | None, group: Any, in_group: int | None) -> int:
    if in_group is not None:
        return in_group
    return int(c10d.get_group_rank(group or c10d._get_default_group(), named or 0))


def _write_groups(path: Path) -> None:
    """A line for each group, also those of which this rank is no member: each rank calls new_group for all."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    autograd: Any = sys.modules["torch.autograd"]
    new, split = c10d._new_process_group_helper, c10d.split_group

    def note(name: object, groups: Iterable[Any]) -> None:
        with path.open("a") as file:
            file.writelines(json.dumps({"name": str(name), "ranks": list(ranks)}) + "\n" for ranks in groups)

    @functools.wraps(new)
    def new_and_note(size: int, rank: int, ranks: Any, *args: Any, **kwargs: Any) -> Any:
        note(kwargs.get("group_desc"), [list(ranks) or range(size)])
        return new(size, rank, ranks, *args, **kwargs)

    @functools.wraps(split)
    def split_and_note(*args: Any, **kwargs: Any) -> Any:
        named = inspect.signature(split).bind(*args, **kwargs).arguments
        parent = c10d.get_process_group_ranks(named.get("parent_pg") or c10d._get_default_group())
        split_ranks = named.get("split_ranks") or ()
        note(named.get("group_desc"), [[parent[rank] for rank in ranks] for ranks in split_ranks])
        return split(*args, **kwargs)

    replace(new, new_and_note)
    replace(split, split_and_note)  # init_device_mesh has imported it
    autograd.backward = lambda *_, **__: os._exit(0)
    group = c10d.ProcessGroup
    group.send, group.recv = (_noted_transfer(c10d, path, of) for of in (group.send, group.recv))


def _noted_transfer(c10d: Any, path: Path, transfer: Callable[..., Any]) -> Callable[..., Any]:
    """Members of a group that send to each other are stages. In the group of all they are as far apart as these two."""
    receives = transfer.__name__ == "recv"
    known: set[tuple[int, ...]] = set()

    @functools.wraps(transfer)
    def call(self: Any, tensors: Any, peer: int, *args: Any, **kwargs: Any) -> Any:
        ranks = c10d.get_process_group_ranks(self)
        here, size = self.rank(), c10d.get_world_size()
        found = (
            [ranks] if len(ranks) < size else [list(range(n, size, abs(peer - here))) for n in range(abs(peer - here))]
        )
        if (key := tuple(found[0])) not in known:
            known.add(key)
            lines = (json.dumps({"name": "", "ranks": one, "transfers": True}) + "\n" for one in found)
            with path.open("a") as file:
                file.writelines(lines)
        if receives:  # there is nobody to receive from
            os._exit(0)
        return transfer(self, tensors, peer, *args, **kwargs)

    return call
