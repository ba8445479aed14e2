import torch


def main(model, loader, optimizer, use_amp):
    scaler = torch.amp.GradScaler()
    for x in loader:
        optimizer.zero_grad()
        loss = model(x)
        if use_amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if use_amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
