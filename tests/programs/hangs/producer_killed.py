"""Rank 1 takes its batches from a process of its own, which the kernel's OOM killer has ended: the queue stays empty.

Verdict: stuck-on-io; ranks: 1; says: : SIGKILL, at producer_killed.py:29
On two ranks.
"""

import multiprocessing
import os
import signal

import torch
import torch.distributed as dist


def produce(queue):
    for number in range(5):
        queue.put(number)
    queue.close()
    queue.join_thread()
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    dist.init_process_group("gloo")
    batches = multiprocessing.get_context("fork").Queue()
    multiprocessing.get_context("fork").Process(target=produce, args=(batches,), daemon=True).start()
    for step in range(100):
        if dist.get_rank() == 1 or step < 5:
            batches.get()
        dist.all_reduce(torch.ones(64))


if __name__ == "__main__":
    main()
