"""Rank 0 loads the configuration and leaves the broadcast to the others, in the other half of the `if`.

Verdict: rank-conditional-collective; ranks: 0; says: main_keeps_the_config.py:16
On two ranks.
"""

import torch
import torch.distributed as dist


def load_config():
    config = [None]
    if dist.get_rank() == 0:
        config = [{"lr": 0.1}]
    else:
        dist.broadcast_object_list(config, src=0)
    return config[0]


dist.init_process_group("gloo")
for _ in range(4):
    dist.all_reduce(torch.ones(16))  # a check of the network
config = load_config()
for step in range(100):
    dist.all_reduce(torch.full((16,), config["lr"]))
