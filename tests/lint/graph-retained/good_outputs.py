import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, criterion, rank):
    model = DDP(net, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs, predictions = [], []
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        outputs.append(output.detach())
        predictions.append(output.argmax(1))
    return torch.cat(outputs), torch.cat(predictions)


def contrast(net, views, criterion, rank):
    """The loss is made of all of them."""
    model = DDP(net, device_ids=[rank])
    outputs = []
    for x in views:
        output = model(x)
        outputs.append(output)
    loss = criterion(torch.cat(outputs))
    loss.backward()
