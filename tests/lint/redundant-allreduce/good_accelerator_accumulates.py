import torch
from accelerate import Accelerator


def train(model, batches, grad_accum_every):
    accelerator = Accelerator()
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    for number in range(grad_accum_every):
        with accelerator.no_sync(model) if number < grad_accum_every - 1 else torch.enable_grad():
            accelerator.backward(model(next(batches)) / grad_accum_every)
    optimizer.step()
    optimizer.zero_grad()
