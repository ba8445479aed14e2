"""Repeat the first batch of the training for N steps, then end the script (`--overfit-batch N`).

Loaded only on request. It changes the training data, and nothing else: no collective, no random number.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distdbg.worker.context import RankContext
    from distdbg.worker.overfit.overfitting import Overfitting


#: Set by the launch: the number of steps.
VARIABLE = "DISTDBG_OVERFIT_BATCH"


def start(context: RankContext) -> Overfitting | None:
    """Once torch is imported; None without a request."""
    steps = os.environ.get(VARIABLE, "")
    if not steps.isdecimal():
        return None
    from distdbg.worker.overfit.overfitting import Overfitting

    return Overfitting(context, int(steps))
