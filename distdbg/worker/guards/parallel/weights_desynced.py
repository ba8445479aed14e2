"""Report the norm of each parameter of a DDP model in some steps; the rule compares the ranks.

It reads the device, so it is off by default.
"""

from __future__ import annotations

import sys
from typing import Any

from distdbg.worker.guards.shared.base import Guard

_MOST_NORMS = 2000


class WeightsDesynced(Guard):
    id = "weights-desynced"
    default = "off"
    most = 100
    costs = "one pass over the weights at steps 11, 110, 1010 and each thousand: about 5 ms for 26 million on a CPU"
    blind = "FSDP, whose ranks have different shards; buffers; parameters that DDP ignores, or beyond the 2,000th"

    def window_ends(self) -> None:
        model = self.context.model()
        ranks = self.context.replicas() if hasattr(model, "reducer") else []
        if not ranks:
            return
        torch = sys.modules["torch"]
        own = {f"module.{name}" for name in getattr(model, "parameters_to_ignore", ())}
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad and n not in own][:_MOST_NORMS]
        if not named:
            return
        with torch.no_grad():
            norms: list[Any] = [repr(float(norm)) for norm in torch._foreach_norm([p.detach() for _, p in named])]
        self.report(None, "", self.context.steps, names=[name for name, _ in named], norms=norms, among=ranks)
