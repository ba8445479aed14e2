"""Find the rank of a local rank: by what its launcher says of that node; in a job of one node it is the rank itself.

torchrun gives the ranks of one node numbers in a row, so one pair of a rank and its local rank gives all of that node.
A log that says neither such a pair nor the number of nodes leaves the rank unknown: `[default3]:` is local rank 3 on
every node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distdbg.evidence.logs.exits import Exit
from distdbg.evidence.logs.sources import ParsedLine

_TABLE = re.compile(r"rank\s*: (\d{1,7}) \(local_rank: (\d{1,7})\)")
_NODES = re.compile(
    r"(?:--(?:nnodes|num[_-]machines|num[_-]nodes)[= ]|\b(?:nnodes|num_nodes|max_nodes|num_machines|group_world_size)"
    r"[\"']?\s*[:=]\s*|\bnNodes |SLURM_(?:JOB_NUM_NODES|NNODES)[\"']?[=:] ?[\"']?)"
    r"(?:\d{1,5}:)?(?P<nodes>\d{1,5})\b(?!:)"
    r"|(?P<alone>--standalone\b)"
)
_WORLD = re.compile(
    r"(?<!local_)(?<!node_)(?<!group_)\bworld_size[\"']?\s*[:=]\s*[\"']?(\d{1,7})\b|\bn[Rr]anks (\d{1,7})\b"
    r"|\bMEMBER: \d{1,7}/(\d{1,7})\b|\bStarting with (\d{1,7}) processes\b",
    re.IGNORECASE,
)
_LOCAL_WORLD = re.compile(r"\blocal_world_size[\"']?\s*[:=]\s*[\"']?(\d{1,7})\b", re.IGNORECASE)
_HINTS = ("rank", "node", "world", "WORLD", "NODE", "machines", "MEMBER", "processes", "--standalone")


@dataclass
class _Said:
    """What lines say of the job's size."""

    several: bool = False
    one: bool = False
    world: int = 0
    local_world: int = 0
    local_ranks: set[int] = field(default_factory=set)


def one_node(lines: Iterable[ParsedLine]) -> bool | None:
    """Of a job's lines: False where they are of several nodes, True where they say that the job has one; else None."""
    said = _Said()
    hosts: set[str] = set()
    tasks: set[int | None] = set()
    for line in lines:
        facts = line.facts
        hosts.add(facts.host or facts.pod)
        if facts.local_rank is not None:
            said.local_ranks.add(facts.local_rank)
            tasks.add(facts.task)
            said.several |= facts.rank is not None and facts.rank != facts.local_rank
        if any(hint in line.text for hint in _HINTS):
            _read(line.text, said)
    if said.several or len(hosts - {""}) > 1 or len(tasks - {None}) > 1:
        return False
    if 0 < said.local_world < said.world:
        return False
    every_local_rank = said.world > 0 and said.local_ranks == set(range(said.world))
    return True if said.one or 0 < said.world == said.local_world or every_local_rank else None


def _read(text: str, said: _Said) -> None:
    for table in _TABLE.finditer(text):
        said.several |= table[1] != table[2]
    for found in _NODES.finditer(text):
        alone = found["alone"] is not None or int(found["nodes"]) == 1
        said.one |= alone
        said.several |= not alone and int(found["nodes"]) > 1
    for size in _WORLD.finditer(text):
        said.world = max(said.world, int(size[size.lastindex or 1]))
    for size in _LOCAL_WORLD.finditer(text):
        said.local_world = max(said.local_world, int(size[1]))


@dataclass(frozen=True)
class NodeRanks:
    """The first rank of each node that one launcher's logs name, by its host; `alone` where they are of one node."""

    by_host: Mapping[str, int] = field(default_factory=dict)
    alone: int | None = None

    def rank(self, local_rank: int, host: str) -> int | None:
        first = self.by_host.get(_short(host), self.alone) if host else self.alone
        return first + local_rank if first is not None else None


def node_ranks(lines: Sequence[ParsedLine], exits: Iterable[Exit], *, may_be_several: bool) -> NodeRanks:
    """Of the logs of one launcher. `may_be_several`: lines of other nodes may stand in them, too, without a mark."""
    found: dict[str, set[int]] = {}
    for host, rank, local_rank in _pairs(lines, exits):
        found.setdefault(_short(host), set()).add(rank - local_rank)
    firsts = set().union(*found.values())
    hosts = {_short(line.facts.host or line.facts.pod) for line in lines} | found.keys()
    tasks = {line.facts.task for line in lines if line.facts.local_rank is not None}
    alone = len(firsts) == 1 and len(hosts - {""}) < 2 and len(tasks - {None}) < 2 and not may_be_several
    by_host = {host: min(numbers) for host, numbers in found.items() if host and len(numbers) == 1}
    return NodeRanks(by_host, min(firsts) if alone else None)


def _short(host: str) -> str:
    return host.partition(".")[0]


def _pairs(lines: Iterable[ParsedLine], exits: Iterable[Exit]) -> Iterator[tuple[str, int, int]]:
    """(host, rank, local rank)"""
    for one in exits:
        if one.rank is not None and one.local_rank is not None:
            yield one.host, one.rank, one.local_rank
    for line in lines:
        facts = line.facts
        if facts.rank is not None and facts.local_rank is not None:
            yield facts.host or facts.pod, facts.rank, facts.local_rank
