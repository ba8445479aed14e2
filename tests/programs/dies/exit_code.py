"""A rank ends with a code of its own, and the job ends with that code.

Verdict: rank-exception; ranks: 3; exit: 7
"""

import os
import sys
import time

if os.environ["RANK"] == "3":
    sys.exit(7)
time.sleep(60)
