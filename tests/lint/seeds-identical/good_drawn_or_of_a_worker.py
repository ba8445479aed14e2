import random
import uuid

import torch
import torch.distributed as dist


def drawn():
    seed = uuid.uuid4().int % 2**32
    torch.manual_seed(seed)
    print(dist.get_rank(), seed)


def worker_init(worker_id):
    random.seed(torch.initial_seed() % 2**32)
    torch.manual_seed(1234 + worker_id)
