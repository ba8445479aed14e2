import os
import random

import torch
import torch.distributed as dist


def seed_worker(worker_id):
    random.seed(1234 + 100 * int(os.environ["RANK"]) + worker_id)


def seed_of_the_rank(worker_id):
    random.seed(worker_id + 1000 * dist.get_rank())


def main(data):
    dist.init_process_group("nccl")
    return torch.utils.data.DataLoader(data, num_workers=4, worker_init_fn=seed_worker)
