"""Keep what torch's flight recorder has at the end of the script: a rehearsal reads the schedule of collectives in it.

The recorder is torch's own and always on; nothing is read from it before the end.
"""

from __future__ import annotations

import sys
import time

from distdbg.worker.agent_files import AgentFiles
from distdbg.worker.context import RankContext

#: Ends of steps that are kept: a schedule is the same in all of them, but for the first.
_MOST_STEPS = 64


class OperationsKeeper:
    """One for a rank. `finish` may raise what torch or the file system raises."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._ends: list[int] = []
        context.bus.subscribe("step", self._step_ends)

    def _step_ends(self, *_about: object) -> None:
        if len(self._ends) < _MOST_STEPS:
            self._ends.append(time.time_ns())

    def finish(self) -> None:
        """Write the recorder's pickle, with the user's lines, and the ends of steps. Nothing without NCCL."""
        dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_nccl_trace", None)
        if dump is None:
            return
        files = AgentFiles(self._context, "operations")
        files.write("operations.pickle", dump())
        files.send()
        self._context.fact("step-ends", ends=self._ends)
