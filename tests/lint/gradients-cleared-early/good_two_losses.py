"""Cleared between two losses of which the second one trains; and gradients that are kept before they are cleared."""


def attack(model, loader, optimizer, perturb):
    for x in loader:
        model(x).mean().backward()
        optimizer.zero_grad()
        model(perturb(x)).mean().backward()
        optimizer.step()


def mean_of_two(model, first, second, optimizer):
    first(model).backward()
    kept = [p.grad.clone() for p in model.parameters()]
    optimizer.zero_grad()
    for p, g in zip(model.parameters(), kept, strict=True):
        p.grad = g / 2
    optimizer.step()


def at_the_end(model, loader, optimizer, other):
    for x in loader:
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        other.step()
