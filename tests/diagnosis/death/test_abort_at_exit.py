"""What the finding tells people to do holds: gloo's threads are gone when the script ends."""

import os

import pytest

from distdbg.findings import entry

SCRIPT = """
import gc, os
import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters())
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
dist.barrier()
def threads():
    return sum("gloo" in open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task"))
before = threads()
del model, optimizer
gc.collect()
dist.destroy_process_group()
print("threads", before, threads())
"""


@pytest.mark.slow
def test_the_remedy_leaves_no_thread_that_could_abort(distdbg, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = distdbg("launch", "--nproc-per-node", "1", "train.py", env={"PYTHONPATH": os.devnull})
    _, before, after = next(line for line in done.out.splitlines() if line.startswith("threads")).split()
    assert int(before) > 0 == int(after), done
    for word in ("import torch.distributed.nn.functional", "gc.collect()", "destroy_process_group()"):
        assert word in entry("abort-at-exit").remedy and word in SCRIPT
