"""An Accelerator divides by the number of batches that it was given, which is one here."""

from accelerate import Accelerator


def train(model, loader, optimizer, steps):
    accelerator = Accelerator(mixed_precision="bf16")
    model, loader, optimizer = accelerator.prepare(model, loader, optimizer)
    for step, batch in enumerate(loader):
        loss = model(batch)
        accelerator.backward(loss)  # expect: loss-not-divided
        if (step + 1) % steps.gradient_accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
