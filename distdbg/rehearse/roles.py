"""Choose the ranks that stand for a large job: one for each role that its process groups show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from distdbg.model import grouped

#: Descriptions of groups whose members each have another part of the model: `mesh_pp`, PIPELINE_MODEL_PARALLEL_GROUP.
_PIPELINE = re.compile(r"(?:^|_)pp(?:_|$)|pipe", re.IGNORECASE)


@dataclass(frozen=True)
class FormedGroup:
    """A process group as the job forms it; `transfers`: a member has sent something to another, or received it."""

    name: str
    ranks: tuple[int, ...]
    transfers: bool = False

    @property
    def is_pipeline(self) -> bool:
        return self.transfers or bool(_PIPELINE.search(self.name))

    @property
    def shape(self) -> tuple[int, ...]:
        """The same for groups of other ranks that are as far from each other."""
        return tuple(rank - self.ranks[0] for rank in self.ranks)


def read_groups(text: str) -> tuple[FormedGroup, ...]:
    """The lines that gpu_box_ranks.py writes."""
    lines = map(json.loads, text.splitlines())
    found = (
        FormedGroup(str(line["name"]), tuple(sorted(line["ranks"])), bool(line.get("transfers"))) for line in lines
    )
    return tuple(dict.fromkeys(found))


def representatives(groups: Iterable[FormedGroup], size: int, most: int) -> tuple[int, ...]:
    """Rank 0; of each group of a rank that is chosen the first and the last member, of a pipeline all; at most `most`.

    Groups of rank 0 come first, and pipelines before the others: what is left out is furthest from rank 0. Where rank 0
    has sent something in a group, groups of this shape are pipelines.
    """
    known = [*groups, FormedGroup("", tuple(range(size)))]
    shapes = {group.shape for group in known if group.transfers}
    known = [replace(group, transfers=group.transfers or group.shape in shapes) for group in known]
    known.sort(key=lambda group: (not group.is_pipeline, len(group.ranks)))
    of_rank = grouped((rank, group) for group in known for rank in group.ranks)
    chosen = [0]
    for rank in chosen:  # it grows
        wanted = (member for group in of_rank.get(rank, ()) for member in _roles(group))
        chosen += [member for member in dict.fromkeys(wanted) if member not in chosen]
    return tuple(sorted(chosen[:most]))


def _roles(group: FormedGroup) -> Sequence[int]:
    return group.ranks if group.is_pipeline else (group.ranks[0], group.ranks[-1])
