"""An exception in a helper thread is reported by Python and ends nothing; what ends the rank is the main thread's.

Verdict: rank-exception; ranks: 2; exit: 1; says: the real one
"""

import os
import threading
import time


def helper():
    raise RuntimeError("only a helper")


if os.environ["RANK"] == "2":
    thread = threading.Thread(target=helper)
    thread.start()
    thread.join()
    raise RuntimeError("the real one")
time.sleep(60)
