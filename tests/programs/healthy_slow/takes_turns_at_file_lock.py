"""Each rank unpacks its part of the data under a file lock, one after the other, before any step.

Fools "a rank waits for a lock that another rank holds": that one computes, and releases it.
Quiet for: 20 s
Verdict: none; exit: 0
On two ranks.
"""

import fcntl
import time

import torch
import torch.distributed as dist


def unpack(seconds):
    end, words = time.monotonic() + seconds, {}
    while time.monotonic() < end:
        for word in ("to be or not to be that is the question " * 4_000).split():
            words[word] = words.get(word, 0) + 1
        time.sleep(0.03)  # its core is wanted by others, too


dist.init_process_group("gloo")
with open("unpacking.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    unpack(10)
for _ in range(50):
    dist.all_reduce(torch.ones(64))
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
