"""An Accelerator that knows the number of batches divides by it."""

from accelerate import Accelerator


def train(model, loader, optimizer, steps):
    accelerator = Accelerator(gradient_accumulation_steps=steps.gradient_accumulation_steps)
    model, loader, optimizer = accelerator.prepare(model, loader, optimizer)
    for step, batch in enumerate(loader):
        accelerator.backward(model(batch))
        if (step + 1) % steps.gradient_accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
