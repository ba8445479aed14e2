import torch


def main(model, loader, optimizer):
    scaler = torch.amp.GradScaler()
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x)).backward()
        optimizer.step()  # expect: scaler-misused
