"""Keep what torch's flight recorder has at the end of the script: a rehearsal reads the schedule of collectives in it.

The recorder is torch's own and always on; nothing is read from it before the end. It does not know for which module
FSDP2 gathers or reduces: that is noted beside it, by time.
"""

from __future__ import annotations

import functools
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from distdbg.evidence.ops import RECORDER_BACKENDS
from distdbg.worker.agent_files import AgentFiles
from distdbg.worker.context import RankContext

#: Ends of steps that are kept: a schedule is the same in all of them, but for the first.
_MOST_STEPS = 64
#: Calls of FSDP2 that are kept, the newest: the recorder keeps some 2,000 operations.
_MOST_SPANS = 4096
_FSDP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
_CALLS = ("unshard", "post_backward")


def _recorded_operations(c10d: Any) -> bytes:
    """The entries of all recorders of NCCL in one pickle: torch's older backend has one, and each newer one its own."""
    dumps = [c10d._dump_nccl_trace()]
    if hasattr(c10d, "ProcessGroupNCCL2"):
        dumps += [c10d._dump_fr_trace(True, True, False, backend) for backend in RECORDER_BACKENDS]
    entries = [entry for dump in dumps for entry in pickle.loads(dump).get("entries", ())]
    return pickle.dumps({"entries": sorted(entries, key=lambda entry: entry["time_created_ns"])})


class OperationsKeeper:
    """One for a rank. `finish` may raise what torch or the file system raises."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._ends: list[int] = []
        self._spans: deque[tuple[int, int, str]] = deque(maxlen=_MOST_SPANS)
        context.bus.subscribe("step", self._step_ends)
        context.imports.after(_FSDP, self._note_modules)

    def _note_modules(self, fsdp: Any) -> None:
        group = getattr(fsdp, "FSDPParamGroup", None)
        for name in _CALLS if group is not None else ():
            if (call := getattr(group, name, None)) is not None:
                setattr(group, name, self._noted(call))

    def _noted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def noted(group: Any, *args: Any, **kwargs: Any) -> Any:
            begin = time.time_ns()
            try:
                return call(group, *args, **kwargs)
            finally:
                path = getattr(group, "_module_fqn", None)
                self._spans.append((begin, time.time_ns(), path if isinstance(path, str) else ""))

        return noted

    def _step_ends(self, *_about: object) -> None:
        if len(self._ends) < _MOST_STEPS:
            self._ends.append(time.time_ns())

    def finish(self) -> None:
        """Write the recorded operations, with the user's lines, and the ends of steps. Nothing without NCCL."""
        c10d = sys.modules.get("torch._C._distributed_c10d")
        if not hasattr(c10d, "_dump_nccl_trace"):
            return
        files = AgentFiles(self._context, "operations")
        files.write("operations.pickle", _recorded_operations(c10d))
        files.send()
        self._context.fact("step-ends", ends=self._ends)
        if self._spans:
            self._context.fact("collective-modules", spans=list(self._spans))
