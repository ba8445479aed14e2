import torch


def main(model, loader, amp):
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler()
    for x in loader:
        loss = model(x).mean()
        if not amp:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)  # expect: missing-zero-grad
            scaler.update()
