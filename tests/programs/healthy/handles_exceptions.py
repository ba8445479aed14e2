"""A rank raises and handles exceptions all the time, and prints a traceback of one: that is its way of working.

Verdict: none; exit: 0
"""

import traceback

for i in range(100):
    try:
        raise KeyError(i)
    except KeyError:
        if i == 50:
            traceback.print_exc()
