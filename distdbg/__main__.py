"""`python -m distdbg` and `python <absolute>/distdbg/__main__.py` are `distdbg`: see MAIN in assets.py.

Python has put the working directory or our own folder first on the path. No module of either may shadow another.
"""

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
if "distdbg" not in sys.modules:
    sys.path.insert(0, __file__.rsplit("/", 2)[0])
    import distdbg  # noqa: F401 -- from now on its modules are found without the path

    del sys.path[0]

from distdbg.start import main

main()
