"""The script that both ranks of a trial run: one program after another, under one process group, guards anew for each.

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

    told = session.current
    assert told is not None, "this runs under boot.py"
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    dist.init_process_group = lambda *_, **__: None
    dist.destroy_process_group = lambda *_, **__: None
    for number, program in enumerate(programs):
        text = Path(program).read_text(encoding="utf-8")
        modes, arguments = _MODES.search(text), _ARGUMENTS.search(text)
        os.environ[VARIABLE] = modes[1] if modes else ""
        told.guard_anew()
        told.fact("trial", number=number)
        torch.manual_seed(0)
        sys.argv = [program, str(Path(program).parent), *(arguments[1].split() if arguments else ())]
        kept, ends = None, _ENDS.search(text)
        try:
            kept = runpy.run_path(program, run_name="__main__")
            if ends:
                told.fact("trial-raised", error=f"nothing, and {ends[1]} was promised")
        except BaseException as error:
            if not (type(error).__name__ == ends[1] if ends else isinstance(error, SystemExit) and error.code == 0):
                told.fact("trial-raised", error=repr(error))
            told.stand_down()  # while the error is there, as at the end of a script of its own
        told.stand_down()  # so is what the script has made
        del kept
        told.fact("trial-done")
        gc.collect()
        dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1:])
