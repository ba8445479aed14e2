"""Whether the script has a profiler of its own at work: torch runs one at a time, and the script's goes first."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def profiler_of_the_script() -> str:
    """In words, empty where there is none. Also one that is only being warmed up, which nothing else tells."""
    torch: Any = sys.modules["torch"]
    if torch.autograd._profiler_enabled():
        return "the script's own profiler was at work"
    import gc

    cls = torch.autograd.profiler.profile
    for found in gc.get_referrers(cls):
        if type(found) is cls and found.entered and found.kineto_results is None:
            return "the script's own torch.profiler was being warmed up"
    return ""
