"""What a look at a rank's process tells."""

import os
import signal
import subprocess

from distdbg.collect.machine import procfs
from distdbg.launch.agent.ranks import RankProcess


def test_looks_at_which_a_signal_had_stopped_it_are_counted(tmp_path):
    process = subprocess.Popen(["sleep", "60"])
    rank = RankProcess(0, 0, 1, tmp_path / "page", tmp_path / "error")
    try:
        rank.attach(process.pid)
        rank.sample()
        assert rank.stopped == 0
        for number, state, looks in ((signal.SIGSTOP, "T", 2), (signal.SIGCONT, "S", 0)):
            os.kill(process.pid, number)
            while procfs.stat_fields(process.pid)[0] != state:
                pass
            rank.sample()
            rank.sample()
            assert rank.stopped == looks
    finally:
        process.kill()
        process.wait()
        rank.end(None)
