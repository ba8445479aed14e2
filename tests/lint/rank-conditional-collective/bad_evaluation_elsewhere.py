import torch.distributed as dist
from evaluation import evaluate
from torch.nn.parallel import DistributedDataParallel


def main(net, loader):
    model = DistributedDataParallel(net)
    if dist.get_rank() == 0:
        print(evaluate(model, loader))  # expect: rank-conditional-collective
