import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, criterion, rank):
    model = DDP(net, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs, labels = [], []
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        outputs.append(output)  # expect: graph-retained
        labels.append(y)
    return torch.cat(outputs), torch.cat(labels)


class Net(nn.Module):
    def forward(self, x):
        return x
