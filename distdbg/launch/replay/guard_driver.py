"""The script that both ranks of a trial run: one program after another in one process group, with new guards for each.

`init_process_group` and its opposite do nothing in the programs: rendezvous is most of what a launch costs.
"""

from __future__ import annotations

import gc
import os
import re
import runpy
import sys
from datetime import timedelta
from pathlib import Path

from distdbg.worker.guards import VARIABLE

_MODES = re.compile(r"^Modes: (\S+)$", re.M)
_ENDS = re.compile(r"^Ends: (\w+)$", re.M)
_ARGUMENTS = re.compile(r"^Arguments: (.+)$", re.M)


def main(programs: list[str]) -> None:
    import torch
    import torch.distributed as dist

    from distdbg.worker import session

    rank = session.current
    assert rank is not None, "this runs under boot.py"
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    dist.init_process_group = lambda *_, **__: None
    dist.destroy_process_group = lambda *_, **__: None
    for number, program in enumerate(programs):
        text = Path(program).read_text(encoding="utf-8")
        modes, arguments = _MODES.search(text), _ARGUMENTS.search(text)
        os.environ[VARIABLE] = modes[1] if modes else ""
        rank.restart_observers(reset_counts=True)
        rank.fact("trial", number=number)
        torch.manual_seed(0)
        sys.argv = [program, str(Path(program).parent), *(arguments[1].split() if arguments else ())]
        kept, ends = None, _ENDS.search(text)
        try:
            kept = runpy.run_path(program, run_name="__main__")
            if ends:
                rank.fact("trial-raised", error=f"nothing, and {ends[1]} was promised")
        except BaseException as error:
            if not (type(error).__name__ == ends[1] if ends else isinstance(error, SystemExit) and error.code == 0):
                rank.fact("trial-raised", error=repr(error))
            rank.stop_observers()  # while the error is being handled, as at the end of a script
        rank.stop_observers()  # while the objects of the script exist
        del kept
        rank.fact("trial-done")
        gc.collect()
        gc.freeze()  # what torch has imported by now is not examined again
        dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1:])
