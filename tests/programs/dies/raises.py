"""One rank raises while the others work on.

Verdict: rank-exception; ranks: 2; exit: 1; says: no batch 17
"""

import os
import time


def load(batch):
    if os.environ["RANK"] == "2":
        raise ValueError(f"no batch {batch}")


load(17)
time.sleep(60)
