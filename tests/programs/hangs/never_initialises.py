"""Rank 1 never calls init_process_group: it waits for a download. The others wait for it in the rendezvous.

Verdict: stuck-in-python; ranks: 1; says: never_initialises.py:17
On two ranks.
"""

import os
import time

import torch
import torch.distributed as dist


def download(model):
    while os.environ["RANK"] == "1":
        print("waiting for the model hub", flush=True)
        time.sleep(60)
    return model


download("some/model")
dist.init_process_group("gloo")
for _ in range(100):
    dist.all_reduce(torch.ones(64))
