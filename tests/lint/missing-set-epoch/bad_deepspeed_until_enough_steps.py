"""DeepSpeed steps, and a loader of one's own begins anew at its end."""

import deepspeed
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(net, dataset, args):
    deepspeed.init_distributed()
    sampler = DistributedSampler(dataset, rank=dist.get_rank(), shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    engine, _, _, _ = deepspeed.initialize(model=net, config=args.config)
    batches = iter(loader)
    for _ in range(args.steps):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)  # expect: missing-set-epoch
            batch = next(batches)
        engine.backward(engine(batch))
        engine.step()
