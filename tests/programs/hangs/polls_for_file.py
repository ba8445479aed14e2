"""Rank 0 polls for a marker file of another job. The others wait for its broadcast.

Verdict: stuck-in-python; ranks: 0; says: polls_for_file.py:17
On two ranks.
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def wait_for(path):
    while not os.path.exists(path):  # the other job writes to another folder
        time.sleep(0.2)


dist.init_process_group("gloo")
folder = os.environ.get("DISTDBG_TEST_TMP", tempfile.gettempdir())
for step in range(100):
    batch = torch.ones(1000)
    if dist.get_rank() == 0 and step == 4:
        wait_for(os.path.join(folder, "preprocessing-of-nobody.done"))
    dist.broadcast(batch, src=0)
    dist.all_reduce(batch)
