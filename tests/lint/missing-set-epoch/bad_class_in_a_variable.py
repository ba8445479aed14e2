import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler


def main(args, model, data, more):
    dist.init_process_group("nccl")
    sampler_of = RandomSampler if args.local_rank == -1 else DistributedSampler
    trainloader = DataLoader(data, sampler=sampler_of(data))
    unlabelled_trainloader = DataLoader(more, sampler=sampler_of(more))
    train(args, model, trainloader, unlabelled_trainloader)


def train(args, model, trainloader, unlabelled_trainloader):
    batches, others = iter(trainloader), iter(unlabelled_trainloader)
    for epoch in range(args.epochs):
        for _ in range(args.steps):  # expect: missing-set-epoch
            try:
                x = next(batches)
            except StopIteration:
                batches = iter(trainloader)
                x = next(batches)
            model(x, next(others)).mean().backward()
