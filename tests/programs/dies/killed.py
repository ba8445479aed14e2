"""A rank is killed by SIGKILL from outside of Python's reach.

Verdict: rank-killed; ranks: 3; exit: 137; says: SIGKILL
"""

import os
import signal
import time

if os.environ["RANK"] == "3":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
