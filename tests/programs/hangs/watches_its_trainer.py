"""The main thread watches a thread that trains. On rank 1 that one waits for a file, the others' for rank 1.

Verdict: stuck-in-python; ranks: 1; says: watches_its_trainer.py:19
On two ranks.
"""

import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


def train():
    for step in range(1000):
        if step == 6 and dist.get_rank() == 1:
            while not Path("never").exists():
                time.sleep(0.5)
        dist.all_reduce(torch.ones(8))


dist.init_process_group("gloo")
trainer = threading.Thread(target=train, daemon=True)
trainer.start()
while trainer.is_alive():
    time.sleep(0.5)
