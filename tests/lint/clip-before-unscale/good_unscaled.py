import torch


def main(model, loader, optimizer, use_amp):
    scaler = torch.amp.GradScaler()
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def either(model, loader, optimizer, use_amp):
    scaler = torch.amp.GradScaler()
    for x in loader:
        optimizer.zero_grad()
        loss = model(x)
        if use_amp:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
