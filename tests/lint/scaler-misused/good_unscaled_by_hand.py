import torch


def main(model, loader, loss_of):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_of(model(x), y)
        scaler.scale(loss).backward()
        factor = scaler.get_scale()
        for p in model.parameters():
            p.grad.div_(factor)
        optimizer.step()
        scaler.update(factor)
