"""Waits until whoever made the bed is gone (its end of our standard input closes), then takes the bed down.

Started by its path, with the bed's folder; standard library only, so that it lives through whatever it looks after.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from tests.cluster.bed import take_down

    sys.stdin.buffer.read()
    take_down(Path(sys.argv[1]))
