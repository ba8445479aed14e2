"""A cache is guarded by a lock file. Rank 0 keeps it open after its turn; rank 1 waits for it, the rest for rank 1.

Verdict: group-deadlock; ranks: 0-1; says: file_lock.py:21
On two ranks.
"""

import fcntl
import os
import tempfile

import torch
import torch.distributed as dist

folder = os.environ.get("DISTDBG_TEST_TMP", tempfile.gettempdir())
cache = os.path.join(folder, f"cache-{os.environ.get('TORCHELASTIC_RUN_ID', 'none')}.lock")
kept = []


def read_cache():
    handle = open(cache, "a+")
    fcntl.flock(handle, fcntl.LOCK_EX)
    kept.append(handle)  # for "later", so nothing ever closes it


dist.init_process_group("gloo")
for step in range(100):
    dist.all_reduce(torch.ones(16))
    if step == 3 and dist.get_rank() == 0:
        read_cache()
    if step == 4 and dist.get_rank() == 1:
        read_cache()
