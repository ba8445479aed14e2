"""Which of torchrun's variables a program gets that is no script of ours: `--no-python`, one rank in all.

torchrun says to every child that it is a rank, whose store torchrun serves. The ranks that a launcher or a script
starts by itself would believe that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdbg.evidence.host.rank_processes import lets_rank_through
from distdbg.launch.io.ports import ReservedPort

_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


class RankVariables:
    """`program` is the command of --no-python, empty for a script."""

    def __init__(self, torchrun: Sequence[str]) -> None:
        words = list(torchrun)
        at = words.index("--") if "--" in words else len(words)
        self._program = tuple(words[at + 1 :]) if "--no-python" in words[:at] else ()
        self._port: ReservedPort | None = None

    def changes(self, given: Mapping[str, str]) -> dict[str, str | None]:
        """What to change in the variables of a child; None takes a variable away.

        A program may be the one rank, or start ranks in whatever way: it gets a port of its own, where the first rank
        serves the store as it does without torchrun. mpirun gets none of the variables: all its ranks would have the
        same RANK.
        """
        if not self._program or given.get("WORLD_SIZE") != "1":
            return {}
        if lets_rank_through(self._program):
            return dict.fromkeys(given)
        if given.get(_AGENT_STORE) != "True":
            return {}
        self._port = self._port or ReservedPort()
        return {_AGENT_STORE: None, "MASTER_PORT": str(self._port.number)}
