"""Somebody sends SIGTERM to one rank: that is the cause, although the others get SIGTERM as well, later.

Verdict: rank-killed; ranks: 1; exit: 143; says: SIGTERM
On two ranks.
"""

import os
import signal
import time

if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
