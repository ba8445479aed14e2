"""A thread of rank 1 ships the log and keeps the handler's lock while its server is away; the next line waits for it.

Verdict: stuck-on-lock; ranks: 1; says: log_handler_lock.py:27
On two ranks.
"""

import logging
import threading
import time

import torch
import torch.distributed as dist


def ship():
    with handler.lock:
        time.sleep(3600)


dist.init_process_group("gloo")
logger, handler = logging.getLogger("train"), logging.StreamHandler()
logger.addHandler(handler)
for step in range(100):
    if step == 5 and dist.get_rank() == 1:
        threading.Thread(target=ship, daemon=True).start()
        time.sleep(0.2)
    logger.warning("step %d", step)
    dist.all_reduce(torch.ones(16))
