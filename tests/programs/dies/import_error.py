"""Every rank fails in the same import: said once, not four times.

Verdict: launch-failed; ranks: 0-3; exit: 1; says: no_such_module
"""

import os
import signal
import time
from pathlib import Path

# All get as far as the import before torchrun, which ends the others when one has died, can keep one from it.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
here = Path("reached")
here.mkdir(exist_ok=True)
(here / os.environ["RANK"]).touch()
while len(list(here.iterdir())) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)

import no_such_module  # noqa: F401
