"""Some ranks of a larger job: those that a rehearsal runs, where it does not run all. Pure.

torchrun starts as many processes as are chosen, on one node. `logs_specs.py`, which runs in it, gives each the
variables that it would have in the whole job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from distdbg.model import fold_ranks, unfold_ranks

#: Of the launcher and of torchrun: `8x8:0,7,56,63`.
VARIABLE = "DISTDBG_CHOSEN_RANKS"
#: The same below `topology` in job.json.
KEY = "chosen_ranks"


@dataclass(frozen=True)
class ChosenRanks:
    """`ranks` in order, of a job of `nodes` x `gpus`."""

    nodes: int
    gpus: int
    ranks: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.nodes * self.gpus

    @property
    def text(self) -> str:
        return f"{self.nodes}x{self.gpus}:{fold_ranks(self.ranks)}"

    def node_of(self, rank: int) -> int:
        return rank // self.gpus

    def variables(self, place: int) -> dict[str, str]:
        """What torchrun would give the rank; `place` is its number among the chosen ones."""
        rank = self.ranks[place]
        found = {"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": rank % self.gpus, "GROUP_RANK": self.node_of(rank),
                 "WORLD_SIZE": self.size, "ROLE_WORLD_SIZE": self.size, "LOCAL_WORLD_SIZE": self.gpus,
                 "GROUP_WORLD_SIZE": self.nodes}  # fmt: skip
        return {name: str(number) for name, number in found.items()}


def chosen_ranks(text: object) -> ChosenRanks | None:
    """What `ChosenRanks.text` has written; None of anything else, and where all ranks run."""
    found = re.fullmatch(r"(\d{1,5})x(\d{1,3}):([\d,-]{1,500})", text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        chosen = ChosenRanks(int(found[1]), int(found[2]), unfold_ranks(found[3]))
    except ValueError:
        return None
    return chosen if chosen.gpus and chosen.ranks and chosen.ranks[-1] < chosen.size else None


def of_job(job: Mapping[str, object]) -> ChosenRanks | None:
    """Of the object in job.json."""
    topology = job.get("topology")
    return chosen_ranks(topology.get(KEY)) if isinstance(topology, Mapping) else None
