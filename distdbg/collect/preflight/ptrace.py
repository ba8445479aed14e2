"""Test with an idle child process whether py-spy could sample a hung rank here."""

from __future__ import annotations

import subprocess
from typing import Any

from distdbg.collect.machine.pyspy import probe


def look() -> dict[str, Any]:
    """pyspy, ptrace, because: as collect/machine/pyspy.py has them."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        found = probe(child.pid)
        if child.stdin is not None:
            child.stdin.close()
    return found
