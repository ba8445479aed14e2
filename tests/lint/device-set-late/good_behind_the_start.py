import os

import torch
from torch.distributed import init_process_group


def setup():
    init_process_group(backend="nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
