"""Detect reads of device values: of a rehearsal, in which a device computes none and a branch on one is arbitrary.

A fact for each line that reads one, at its first read: a script that loops until a value is right may never end.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from distdbg.worker.context import RankContext

#: Methods of a tensor that bring its values to the host. A condition on a tensor calls `__bool__`.
_READS = ("__bool__", "item", "tolist", "__float__", "__int__", "__index__", "cpu", "numpy")
#: What reads values in C++: the size of the result, or the result.
_IN_C = ("nonzero", "masked_select", "unique", "equal", "allclose")
#: Below torch: what is read there steers no script. Of an inner path, `torch/` before it.
_INNER = ("distributed/", "_dynamo/", "_inductor/", "nn/parallel/", "_tensor", "utils/")
_SCALER = "amp/grad_scaler.py"
_MOST_LINES = 64


class ValueReads:
    """One for a rank."""

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
