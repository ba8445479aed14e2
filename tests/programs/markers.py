"""Each rank leaves files with markers, such as `1-0.started` of attempt 1, rank 0.

started: its pid · step: the step that it has made · waits: it waits for the others, after its last step · ended: its
exit code, written immediately before the end. The arguments are the folder and the number of steps of 50 ms. In the
first attempt rank 1 ends with exit code 3 after half of them, and the others go on.
"""

import os
import sys
import time
from pathlib import Path

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
attempt, rank = int(os.environ["DISTDBG_ATTEMPT"]), int(os.environ["RANK"])


def mark(kind, value):
    path = folder / f"{attempt}-{rank}.{kind}"
    path.with_suffix(f".{kind}-new").write_text(str(value))
    path.with_suffix(f".{kind}-new").rename(path)  # whole or not there


def end(code):
    mark("ended", code)
    sys.exit(code)


mark("started", os.getpid())
for step in range(steps if attempt > 1 or rank == 1 else 100 * steps):
    time.sleep(0.05)
    mark("step", step)
    if attempt == 1 and rank == 1 and step == steps // 2:
        end(3)
mark("waits", "")
while len(list(folder.glob(f"{attempt}-?.waits"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.02)
end(0)
