"""The process groups of a job, and what the flight recorder of each member says about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from distdbg.evidence.dump import Dump
from distdbg.evidence.recorder.log import ON_DEVICE, GroupLog
from distdbg.evidence.run import RankRecord
from distdbg.model import fold_ranks

#: How DeviceMesh begins the description of the group of one of its dimensions (torch/distributed/device_mesh.py).
_MESH = "mesh_"


@dataclass(frozen=True)
class Group:
    """A process group and what its members' recorders say of it."""

    name: str
    ranks: tuple[int, ...]
    logs: Mapping[int, GroupLog]
    #: the backend whose operations these are: nccl, gloo, …
    comm: str = ""
    #: its members are known; else `ranks` are those that have used it, as far as that was seen
    told: bool = True

    @property
    def on_device(self) -> bool:
        return self.comm in ON_DEVICE

    @property
    def _description(self) -> str:
        return next((log.description for log in self.logs.values() if log.description), "")

    @property
    def default(self) -> bool:
        return _is_default(self.name, self._description)

    @property
    def title(self) -> str:
        return group_title(self.name, self._description, self.ranks)


def _is_default(name: str, description: str) -> bool:
    return description in ("default_pg", "") and name in ("0", "")


def group_title(name: str, description: str, ranks: Iterable[int]) -> str:
    """`the tp group of ranks 8-15` for a dimension of a mesh; else `group 7`, with a description if it has one."""
    if _is_default(name, description):
        return "the default group"
    if description.startswith(_MESH):
        return f"the {description.removeprefix(_MESH)} group of ranks {fold_ranks(ranks)}"
    return f"group {name}" + (f" ({description})" if description not in ("undefined", "") else "")


def groups(dump: Dump, records: Mapping[int, RankRecord]) -> list[Group]:
    """Every group that a recorder has heard of, by its name and its members: two ranks may use one name differently."""
    members = _Members(dump, records)
    found: dict[tuple[str, str, int], dict[int, GroupLog]] = defaultdict(dict)
    for rank, had in dump.ranks.items():
        for (name, comm), log in had.recorder.groups.items() if had.recorder else ():
            found[name, comm, members.of(rank, log)][rank] = log
    known = []
    for (name, comm, number), logs in found.items():
        # A member whose recorder was had, and that never used the group, has enqueued nothing there.
        for rank in members.known[number]:
            if rank not in logs and rank in dump.ranks and dump.ranks[rank].recorder is not None:
                logs[rank] = GroupLog(name, "", comm=comm)
        known.append(Group(name, members.known[number], logs, comm, (name, number) in members.told))
    return sorted(known, key=lambda group: (group.name, group.ranks, group.comm))


class _Members:
    """Who is in a group, as its ranks have told, by a number: a tuple of 16,384 ranks is hashed once, not by each."""

    def __init__(self, dump: Dump, records: Mapping[int, RankRecord]) -> None:
        self._records = records
        self._has_all_ranks = dump.has_all_ranks
        self._everybody = tuple(sorted(records.keys() | dump.ranks.keys() | dump.missing.keys()))
        users: dict[str, list[int]] = defaultdict(list)
        for rank, had in dump.ranks.items():
            for name in {name for name, _ in had.recorder.groups} if had.recorder else ():
                users[name].append(rank)
        self._users = {name: tuple(sorted(ranks)) for name, ranks in users.items()}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._by_identity: dict[int, int] = {}
        self.known: list[tuple[int, ...]] = []
        #: (name, number) of the groups whose members are more than the ranks that were seen to use them
        self.told: set[tuple[str, int]] = set()

    def of(self, rank: int, log: GroupLog) -> int:
        told = (self._records[rank].groups.get(log.name) if rank in self._records else None) or log.ranks
        default = log.name in ("0", "") or log.description == "default_pg"
        members = told or (self._everybody if default else self._users[log.name])
        number = self._by_identity.get(id(members))
        if number is None:
            number = self._by_identity[id(members)] = self._numbers.setdefault(members, len(self.known))
            if number == len(self.known):
                self.known.append(members)
        if told or (default and self._has_all_ranks):
            self.told.add((log.name, number))
        return number
