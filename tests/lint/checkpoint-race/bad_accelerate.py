import torch
from accelerate import Accelerator


def main(model, optimizer, loader, folder):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    torch.save(accelerator.unwrap_model(model).state_dict(), f"{folder}/last.pt")  # expect: checkpoint-race
