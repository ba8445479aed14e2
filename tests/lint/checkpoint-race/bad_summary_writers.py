import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter


def main(args):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    writer = SummaryWriter(args.log_dir)  # expect: checkpoint-race
    if rank == 0:
        writer.add_scalar("loss", 0.0, 0)
