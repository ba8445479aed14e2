import torch
import wandb
from backends import backend, setup

device, is_logger = setup()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
rank = torch.distributed.get_rank()
if backend.is_root_worker():
    wandb.init(project="mine")
if is_logger and device:
    wandb.init(project="mine")
