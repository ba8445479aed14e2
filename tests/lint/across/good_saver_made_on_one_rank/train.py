import torch
import torch.distributed as dist
from saver import Saver
from torch.nn.parallel import DistributedDataParallel


def main(model, loader, local_rank):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model.cuda(), device_ids=[local_rank])
    saver = None
    if dist.get_rank() == 0:
        saver = Saver("last.pt")
    for x in loader:
        model(x)
    if saver is not None:
        saver.save(model)


if __name__ == "__main__":
    main(torch.nn.Linear(8, 2), [], 0)
