"""`--watch numerics`, or `distdbg.watch()` in a script: whether the numbers of a training go non-finite, and where.

Off by default, and then nothing of this is loaded. It reads what the training has made and changes none of it: no
collective, no random number, no device waited for while all is well, no tensor kept alive.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distdbg.worker.session import Session
    from distdbg.worker.watch.numerics import NumericsWatch

#: How a launch tells its ranks: what is watched.
VARIABLE = "DISTDBG_WATCH"


def start(session: Session, *, asked: bool = False) -> NumericsWatch | None:
    """Once torch is imported; None where nobody asked for it, by the variable or from the script."""
    if not asked and os.environ.get(VARIABLE) != "numerics":
        return None
    from distdbg.worker.watch.numerics import NumericsWatch

    return NumericsWatch(session)
