"""Start torch's record of its CUDA allocator, with a bounded ring and Python's stacks only.

Without a bound it used up the host's memory, and C++ stacks took minutes to write. Annotations are recorded, too: the
optimizers' names each step; and step and phase beside each event, where torch can (marks.py). Where torch has an
observer of failed requests, it takes a snapshot.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.memory.marks import MemoryMarks

#: Events in the ring: some steps of a large model, 10 MB as a pickle and 1 MB of it packed.
ENTRIES = 100_000
_WANTED: dict[str, Any] = {"context": "alloc", "stacks": "python", "max_entries": ENTRIES}


class History:
    def __init__(self, context: RankContext) -> None:
        self._context = context
        self.recording = False
        #: torch has an observer for failed requests, and it is ours
        self.observed = False
        self._marks: MemoryMarks | None = None

    def begin(self, ran_out: Callable[..., None]) -> None:
        """Now, or once the script begins to use CUDA. torch calls `ran_out` when a request for memory fails."""
        device = getattr(sys.modules.get("torch"), "cuda", None)
        if device is None or not device.is_available() or not hasattr(device.memory, "_record_memory_history"):
            self._context.fact("memory-history", recorded=False, because="this process has no CUDA")
            return
        device._lazy_call(lambda: self._record(device, ran_out))

    def mark(self, step: int, phase: str) -> None:
        """A phase of a step begins."""
        if self._marks is not None:
            self._marks.mark(step, phase)

    def _record(self, device: Any, ran_out: Callable[..., None]) -> None:
        """Called while torch starts CUDA: an exception would be the script's error."""
        try:
            try:
                device.memory._record_memory_history(**_WANTED, global_record_annotations=True)
            except TypeError:  # an older one
                device.memory._record_memory_history(**_WANTED)
            self.recording = True
            self._marks = MemoryMarks()
            attach = getattr(sys.modules["torch"]._C, "_cuda_attach_out_of_memory_observer", None)
            if attach is not None:
                attach(ran_out)
                self.observed = True
        except Exception as error:
            self._context.fact("memory-history", recorded=False, because=repr(error), error=repr(error))
            return
        self._context.fact("memory-history", recorded=True, entries=ENTRIES, observed=self.observed)
