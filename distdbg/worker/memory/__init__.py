"""Record a rank's memory step by step (`--memory`), and take snapshots: on request, at steps, after out-of-memory.

Off by default, and then nothing of this is loaded. Lines go to the agent over its socket, snapshots as files in
node-local memory, which the agent moves into the run directory. No device is waited for, nothing is reset or collected,
and no tensor is kept alive.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distdbg.worker.context import RankContext
    from distdbg.worker.memory.watch import MemoryWatch


#: Set by the launch: `on`, and the steps of snapshots, `A:B`.
VARIABLE = "DISTDBG_MEMORY"
STEPS_VARIABLE = "DISTDBG_MEMORY_STEPS"


def start(context: RankContext) -> MemoryWatch | None:
    """Once torch is imported; None without a request."""
    if os.environ.get(VARIABLE) != "on":
        return None
    from distdbg.worker.memory.watch import MemoryWatch

    return MemoryWatch(context, read_steps(os.environ.get(STEPS_VARIABLE, "")))


def read_steps(text: str) -> range:
    """`10:12` as 10, 11, 12; `10` as 10. Raises ValueError for anything else but nothing."""
    if not text:
        return range(0)
    first, _, last = text.partition(":")
    return range(int(first), int(last or first) + 1)
