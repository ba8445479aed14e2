"""Both are parameters."""


def train(model, loader, optimizer, lr_scheduler):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).backward()
        lr_scheduler.step()  # expect: scheduler-before-optimizer
        optimizer.step()
