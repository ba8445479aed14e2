import torch


def train(model, loader, loss_of, optimizer, half):
    dtype = torch.float16 if half else torch.bfloat16
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype):
            loss = loss_of(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
