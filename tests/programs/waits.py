"""Says that it is ready by making a file named for its rank, then waits; argument 2 says how it takes signals.

plain: as Python does · stubborn: ignores SIGTERM · usr1: notes SIGUSR1 in a file and goes on
"""

import os
import signal
import sys
import time
from pathlib import Path

folder, manner = Path(sys.argv[1]), sys.argv[2]
rank = os.environ["RANK"]
if manner == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if manner == "usr1":
    signal.signal(signal.SIGUSR1, lambda *_: (folder / f"usr1-{rank}").touch())
(folder / f"writing-{rank}").write_text(str(os.getpid()))
(folder / f"writing-{rank}").rename(folder / f"ready-{rank}")  # whole or not there
time.sleep(300)
