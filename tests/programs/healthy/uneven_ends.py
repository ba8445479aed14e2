"""Ranks end at different times, each with exit code 0, and nobody needs anybody.

Verdict: none; exit: 0
"""

import os
import time

time.sleep(0.4 * int(os.environ["RANK"]))
