import torch
import torch.nn.functional as F


def train(model, loader, optimizer, device):
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            logits = model(images.to(device))
        loss = F.cross_entropy(logits, labels.to(device))  # expect: loss-outside-autocast
        loss.backward()
        optimizer.step()
