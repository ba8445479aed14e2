"""Record what a rehearsal needs of a rank: its schedule of collectives, and where it reads values of a device.

In a rehearsal a device computes no values, so a branch on one is arbitrary. torch's flight recorder, which has the
schedule, is always on; nothing is read from it before the end.
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
    """Keep what torch's flight recorder has at the end of the script. `finish` may raise what torch or the file system
    raises.

    The recorder does not know for which module FSDP2 gathers or reduces: that is noted with its time."""

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


#: Methods of a tensor that bring its values to the host. A condition on a tensor calls `__bool__`.
_READS = ("__bool__", "item", "tolist", "__float__", "__int__", "__index__", "cpu", "numpy")
#: What reads values in C++: the size of the result, or the result.
_IN_C = ("nonzero", "masked_select", "unique", "equal", "allclose")
#: Below torch: what is read there steers no script. Of an inner path, `torch/` before it.
_INNER = ("distributed/", "_dynamo/", "_inductor/", "nn/parallel/", "_tensor", "utils/")
_SCALER = "amp/grad_scaler.py"
_MOST_LINES = 64


class ValueReads:
    """Send a fact for each line that reads a value of a device, at its first read: a script that loops until a value is
    right may never end."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._known: set[tuple[str, int]] = set()
        context.imports.after("torch", self._begin)

    def _begin(self, torch: Any) -> None:
        folder = torch.__file__.rpartition("/")[0] + "/"
        for owner, names in ((torch.Tensor, (*_READS, *_IN_C)), (torch, _IN_C)):
            for name in names:
                setattr(owner, name, self._noted(name, getattr(owner, name), folder))

    def _noted(self, name: str, read: Any, torch: str) -> Any:
        @functools.wraps(read)
        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if tensor.is_cuda:
                    self._note(name, torch)
            except Exception as error:
                self._context.fact("watch-failed", watch="ValueReads", error=repr(error))
            return read(tensor, *args, **kwargs)

        return call

    def _note(self, how: str, torch: str) -> None:
        frame: Any = sys._getframe(2)
        inside = frame.f_code.co_filename
        if inside.startswith(torch):
            inside = inside[len(torch) :]
            if inside.startswith(_INNER) or not (how == "__bool__" or inside == _SCALER):
                return
        else:
            inside = ""
        while frame is not None and frame.f_code.co_filename.startswith(torch):
            frame = frame.f_back
        if frame is None:
            return
        key = frame.f_code.co_filename, frame.f_lineno
        if key in self._known or len(self._known) >= _MOST_LINES:
            return
        self._known.add(key)
        self._context.fact("value-read", file=key[0], line=key[1], how=how.strip("_"), inside=inside)
