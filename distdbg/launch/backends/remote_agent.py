"""Start the agent on another host, or print one sentence where that host's Python cannot run it.

    python <absolute>/distdbg/launch/backends/remote_agent.py --remote R --node-rank I|NAME

An image brings a Python of its own, and the agent's files are no syntax for an old one.
"""

import sys

sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]
if sys.version_info < (3, 10):  # noqa: UP036 -- not of the Python that distdbg is installed for
    sys.exit("distdbg needs Python 3.10 or newer; {} is {}.{}".format(sys.executable, *sys.version_info))

from distdbg.launch.agent.agent import main  # noqa: E402 -- an old Python does not come so far

sys.exit(main(sys.argv[1:]))
