"""A scheduler of diffusion steps, and one of a class that nobody knows."""

from ours.schedule import Warmup


def denoise(model, loader, optimizer, noise_scheduler):
    for batch in loader:
        optimizer.zero_grad()
        noise_scheduler.step(batch)
        model(batch).backward()
        optimizer.step()


def train(model, loader, optimizer):
    scheduler = Warmup(optimizer)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).backward()
        scheduler.step()
        optimizer.step()
