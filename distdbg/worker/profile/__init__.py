"""Run torch.profiler over some steps of a rank: those of `--profile`, or the next ones for `distdbg profile`.

Off by default, and then nothing of this is loaded. Before the first of those steps and after the last one nothing
listens. The only cost is that of the profiler, in those steps; a separate thread writes the file in node-local memory,
and the agent moves it into the run directory.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distdbg.worker.context import RankContext
    from distdbg.worker.profile.profiler import Profiler


#: Set by the launch: the steps, `FIRST:LAST`, and the ranks, `0-3,8` (all without the variable).
VARIABLE = "DISTDBG_PROFILE"
RANKS_VARIABLE = "DISTDBG_PROFILE_RANKS"


def start(context: RankContext) -> Profiler | None:
    """Once torch is imported; None where this rank is not to be profiled. Raises ValueError for invalid steps."""
    steps = os.environ.get(VARIABLE, "")
    if not steps or not _holds(os.environ.get(RANKS_VARIABLE, ""), context.rank):
        return None
    from distdbg.worker.profile.profiler import Profiler

    first, _, last = steps.partition(":")
    profiler = Profiler(context)
    profiler.await_steps(int(first), int(last or first))
    return profiler


def _holds(ranks: str, rank: int) -> bool:
    """`0-3,8` holds 2; nothing holds all."""
    parts = [part.partition("-") for part in ranks.split(",") if part]
    return not parts or any(int(low) <= rank <= int(high or low) for low, _, high in parts)
