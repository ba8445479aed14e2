"""Norms of parameters, without a wait for a device and without an effect on the training."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from distdbg.worker.late_figures import LateFigures

#: Seconds at the end of a script in which norms may still arrive: the device may be in a collective that never ends.
_AT_THE_END_S = 0.2


class Norms:
    """Of one list of parameters at a time, with what the caller says of them; of a DTensor this rank's part.

    About 1 ms for 5 million numbers on a CPU."""

    def __init__(self) -> None:
        self._late = LateFigures()

    def measure(self, parameters: Sequence[Any], about: object) -> None:
        """Nothing where the norms before have not arrived, and for other devices than CPU and CUDA."""
        torch = sys.modules["torch"]
        parts = [getattr(p, "_local_tensor", p).detach() for p in parameters]
        kinds = {part.device for part in parts}
        if len(kinds) != 1 or (kind := kinds.pop().type) not in ("cpu", "cuda"):
            return
        if kind == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        wide = any(part.dtype == torch.float64 for part in parts)
        with torch.no_grad():
            norms = torch._foreach_norm(parts, 2, dtype=torch.float64 if wide else torch.float32)
            self._late.send(torch.stack(norms), about)

    def arrived(self, *, last: bool = False) -> tuple[list[float], Any] | None:
        """The norms, and what was said of them; `last`: the script has ended."""
        return self._late.wait(_AT_THE_END_S) if last else self._late.take()


def is_measured(parameter: Any) -> bool:
    """Whether it is trained, and has numbers on this rank."""
    part = getattr(parameter, "_local_tensor", parameter)
    return bool(parameter.requires_grad and part.is_floating_point() and not part.is_sparse and part.numel())
