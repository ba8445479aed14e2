"""For every Python that a test starts: the end of the interpreter waits until gloo's threads sleep.

torch's gloo tells a script that a collective is done, and only then frees it in a thread of its own. After a
backward() such a work holds a Python object (torch/autograd/graph.py stashes the context): the thread asks for the
interpreter, and where that is ending by then, it is ended inside C++, and the process aborts (-6), however well the
training went. On a busy machine that is one launch in a hundred. Source: https://github.com/pytorch/pytorch/issues/190489

And the garbage collector leaves out what torch's own modules consist of. They are 170,000 objects that live until the
end: to go through them again and again while torch is imported, and twice at exit, takes 0.6 s of the 2.0 s of CPU time
of a script that only imports torch. What a script makes itself is collected as anywhere else, at exit as well. A rank
that ends by an exception takes as long to end as elsewhere: meanwhile an agent asks the others what they waited for.
"""

import atexit
import gc
import os
import sys
import time

_NAME = "pt_gloo_runloop"
#: A thread that never sleeps is not waited for longer.
_AT_MOST_S = 5.0
#: What the collector would take for all of torch.
_END_TAKES_S = 1.0


def _busy(task: str) -> bool:
    try:
        with open(f"/proc/self/task/{task}/stat") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
    except OSError:
        return False
    return name == _NAME and rest.split()[0] != "S"


def _wait_for_gloo() -> None:
    until = time.monotonic() + _AT_MOST_S
    asleep = 0
    while asleep < 2 and time.monotonic() < until:
        time.sleep(0.001)  # lets go of the interpreter, for which such a thread may be waiting
        asleep = 0 if any(map(_busy, os.listdir("/proc/self/task"))) else asleep + 1


def _at_exit() -> None:
    if "torch" in sys.modules:
        _wait_for_gloo()
        if hasattr(sys, "last_type"):
            time.sleep(_END_TAKES_S)


def _leave_out_modules(phase: str, info: dict[str, int]) -> None:
    """Called before and after each collection. Other imports may come when the script has objects of its own."""
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    if phase == "start" and getattr(spec, "_initializing", False):
        gc.freeze()


atexit.register(_at_exit)
gc.callbacks.append(_leave_out_modules)
