import torch


def train(model, loader, optimizer, device, fill):
    buffer = torch.zeros(32, 128)
    other = torch.zeros(32, 128)
    once = torch.ones(8)
    moved = None
    for rows in loader:
        optimizer.zero_grad()
        for place, row in enumerate(rows):
            buffer[place, : len(row)] = row
        fill(other, rows)
        if moved is None:
            moved = once.to(device)
        loss = (model(buffer.to(device)) - model(other.to(device))).sum() + moved.sum()
        loss.backward()
        optimizer.step()


def test_each_device(devices):
    for device in devices:
        assert torch.zeros(3).to(device).sum() == 0
