"""A rank reads address 0 in native code.

Verdict: rank-killed; ranks: 0; exit: 139; says: SIGSEGV
On two ranks.
"""

import ctypes
import os
import time

if os.environ["RANK"] == "0":
    ctypes.string_at(0)
time.sleep(60)
