"""What torchrun starts in place of the script: `python -u <absolute>/distdbg/worker/boot.py SCRIPT ARGS`, or -m MODULE.

Until the script has been given its own place nothing but `sys` is imported from a path with our folder in front:
a module of ours must never shadow one of the standard library's, and neither may the script's folder, for us.
"""

import sys

_given = {name: value for name, value in globals().items() if name != "sys"}
if sys.path and sys.path[0] == __file__.rpartition("/")[0]:
    del sys.path[0]
sys.path.insert(0, __file__.rsplit("/", 3)[0])
from distdbg.worker import bootstrap  # noqa: E402

del sys.path[0]
bootstrap.run(_given, sys.argv[1:])
