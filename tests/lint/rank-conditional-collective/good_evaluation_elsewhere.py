import torch.distributed as dist
from evaluation import evaluate, save
from torch.nn.parallel import DistributedDataParallel


def main(net, loader):
    model = DistributedDataParallel(net)
    print(evaluate(model, loader))
    if dist.get_rank() == 0:
        print(evaluate(model.module, loader))
        save(model)
