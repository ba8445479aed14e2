"""Start the worker side, then the script: torchrun runs `python -u <absolute>/distdbg/worker/boot.py SCRIPT ARGS`.

Only `sys` is imported while a folder of ours is the first of sys.path: no module of ours may shadow one of the standard
library's, and no file beside the script may shadow one of ours.
"""

import sys

_given = {name: value for name, value in globals().items() if name != "sys"}
if sys.path and sys.path[0] == __file__.rpartition("/")[0]:
    del sys.path[0]
sys.path.insert(0, __file__.rsplit("/", 3)[0])
from distdbg.worker import bootstrap  # noqa: E402

del sys.path[0]
bootstrap.run(_given, sys.argv[1:])
