"""Says that it is ready by making a file named for its rank, then waits; argument 2 says how it takes signals.

plain: as Python does · stubborn: ignores SIGTERM · notes: notes SIGUSR1 and SIGUSR2 in files and goes on
saves: notes whatever it is ended by in a file, a while later, and ends
daemon: rank 0 starts a process in a session of its own, and writes its number into a file
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

folder, manner = Path(sys.argv[1]), sys.argv[2]
rank = os.environ["RANK"]
if manner == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if manner == "notes":
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda n, _: (folder / f"{signal.Signals(n).name}-{rank}").touch())


def save(number, _frame):
    time.sleep(1)
    (folder / f"{signal.Signals(number).name}-{rank}").touch()
    sys.exit(0)


if manner == "saves":
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        signal.signal(number, save)
if manner == "daemon" and rank == "0":
    daemon = subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL)
    (folder / "daemon").write_text(str(daemon.pid))
(folder / f"writing-{rank}").write_text(str(os.getpid()))
(folder / f"writing-{rank}").rename(folder / f"ready-{rank}")  # whole or not there
time.sleep(300)
