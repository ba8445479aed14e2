from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(args, data):
    sampler = DistributedSampler(data) if args.distributed else None  # expect: data-not-sharded
    loader = DataLoader(data, 64, shuffle=sampler is None)
    for epoch in range(args.epochs):
        if sampler:
            sampler.set_epoch(epoch)
        train(loader)
