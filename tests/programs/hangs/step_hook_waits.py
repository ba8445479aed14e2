"""A hook behind rank 1's optimizer step waits until its upload queue is empty; nobody empties it any more.

Verdict: stuck-on-lock; ranks: 1; says: step_hook_waits.py:26
On two ranks.
"""

import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

uploads = queue.Queue()


def upload():
    for number in range(10**6):
        uploads.get()
        if not (number == 4 and dist.get_rank() == 1):  # forgotten after the error is handled
            uploads.task_done()


def flush(*_):
    uploads.put("weights")
    uploads.join()


dist.init_process_group("gloo")
threading.Thread(target=upload, daemon=True).start()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer.register_step_post_hook(flush)
for _ in range(100):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
