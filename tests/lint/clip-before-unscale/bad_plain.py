import torch


def main(model, loader, optimizer):
    scaler = torch.amp.GradScaler()
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # expect: clip-before-unscale
        scaler.step(optimizer)
        scaler.update()
