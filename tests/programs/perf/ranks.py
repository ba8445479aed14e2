"""What all ranks of one launch run: the programs that are named, one after another, each watched and profiled anew.

To start ranks is nearly all that a launch of a small program costs. `init_process_group` and its opposite do nothing in
the programs; each is named in the rank's facts, and profiled from its fourth step to its eighth.
"""

import gc
import runpy
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from distdbg.worker import session

FIRST, COUNT = 4, 5


def main(programs):
    rank = session.current
    assert rank is not None, "this runs below distdbg launch"
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    dist.init_process_group = lambda *_, **__: None
    dist.destroy_process_group = lambda *_, **__: None
    torch.set_num_threads(1)
    for program in programs:
        rank.restart_observers(reset_counts=False)
        before = rank.page.steps()  # they go on, so that no profile of one program has another's name
        rank.fact("program", name=Path(program).name, before=before)
        rank.profile({"id": program, "first": before + FIRST, "steps": COUNT})
        torch.manual_seed(0)
        sys.argv = [program]
        kept = runpy.run_path(program, run_name="__main__")
        rank.stop_observers()
        rank.finish_profile()
        del kept
        gc.collect()
        gc.freeze()  # what torch has imported by now is not examined again
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()  # or what one program compiled is compiled again for the next
        dist.barrier()


main(sys.argv[1:])
