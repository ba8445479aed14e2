"""die_in_save.py RANK COUNT SCRIPT ARGS: run SCRIPT, but SIGKILL rank RANK at its COUNTth fsync: amid a checkpoint."""

import itertools
import os
import runpy
import signal
import sys

victim, fatal = int(sys.argv[1]), int(sys.argv[2])
calls = itertools.count(1)
real_fsync = os.fsync


def fsync(descriptor):
    if next(calls) == fatal and int(os.environ["RANK"]) == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    real_fsync(descriptor)


os.fsync = fsync
sys.argv = sys.argv[3:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
