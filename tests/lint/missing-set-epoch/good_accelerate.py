from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler


def main(data, model, optimizer):
    accelerator = Accelerator()
    loader = DataLoader(data, sampler=DistributedSampler(data))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(10):
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(model(batch))
            optimizer.step()
