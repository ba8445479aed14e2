import random

import torch
import torch.distributed as dist


def seed_worker(worker_id):
    random.seed(1234 + worker_id)  # expect: seeds-identical


def main(data):
    dist.init_process_group("nccl")
    return torch.utils.data.DataLoader(data, num_workers=4, worker_init_fn=seed_worker)
