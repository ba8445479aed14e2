"""Whether a rank could be looked into here when it hangs: tried on a child that does nothing."""

from __future__ import annotations

import subprocess
from typing import Any

from distdbg.collect.machine.sampling_access import probe


def look() -> dict[str, Any]:
    """pyspy, ptrace, because: as collect/machine/sampling_access.py has them."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        found = probe(child.pid)
        if child.stdin is not None:
            child.stdin.close()
    return found
