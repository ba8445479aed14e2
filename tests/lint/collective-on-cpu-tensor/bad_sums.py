import torch
import torch.distributed as dist


def start():
    dist.init_process_group("nccl")


class Meter:
    def __init__(self):
        self.sum = self.count = 0.0

    def all_reduce(self):
        total = torch.FloatTensor([self.sum, self.count])
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)  # expect: collective-on-cpu-tensor
        self.sum, self.count = total.tolist()


def stop_together(stop):
    flag = torch.tensor([float(stop)])
    dist.broadcast(flag, 0)  # expect: collective-on-cpu-tensor
    return flag.item() > 0
