import torch.distributed as dist
from torchmetrics import MeanMetric


def evaluate(model, loader):
    metric = MeanMetric().cuda()
    for x in loader:
        metric.update(model(x))
    if dist.get_rank() == 0:
        print(metric.compute())  # expect: rank-conditional-collective
