"""Make a model smaller while an unmodified script runs: `distdbg launch --keep-layers N --skip-attention …`.

Nothing of this is loaded unless requested. It changes the computation, so the launcher, every report and a file beside
every checkpoint say so.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from distdbg.worker.context import RankContext

KEEP, SKIP, LOAD = "DISTDBG_KEEP_LAYERS", "DISTDBG_SKIP_ATTENTION", "DISTDBG_FULL_LOAD"


def start(context: RankContext) -> None:
    """Does nothing where nothing was requested. Where the request cannot be met, the rank ends: SystemExit."""
    if not (os.environ.get(KEEP) or os.environ.get(SKIP)):
        return
    from distdbg.worker.shrunk.shrinking import Shrinking, refuse

    try:
        keep, skip, loaded = int(os.environ.get(KEEP) or 0), os.environ.get(SKIP, ""), bool(os.environ.get(LOAD))
        Shrinking(context, keep, skip, loaded=loaded).start()
    except Exception as error:
        refuse(context, error)
