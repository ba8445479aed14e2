import torch
from accelerate import Accelerator


def main(model, optimizer, loader, path):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).sum())
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.is_main_process:
        model = accelerator.unwrap_model(model)
        torch.save({"model": model.state_dict()}, path)
