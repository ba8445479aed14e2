import torch


def clip(scaler, optimizer, model):
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def two_optimizers(first, second, loader):
    scaler = torch.amp.GradScaler("cpu")
    first_optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    second_optimizer = torch.optim.SGD(second.parameters(), lr=0.1)
    for x in loader:
        first_optimizer.zero_grad()
        second_optimizer.zero_grad()
        scaler.scale(second(first(x)).mean()).backward()
        clip(scaler, first_optimizer, first)
        clip(scaler, second_optimizer, second)
        scaler.step(first_optimizer)
        scaler.step(second_optimizer)
        scaler.update()


def one_branch_or_the_other(model, loader, optimizer, by_value):
    scaler = torch.amp.GradScaler("cpu")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x).mean()).backward()
        if by_value:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        else:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def many_optimizers(models, loader, optimizers):
    scaler = torch.amp.GradScaler("cpu")
    for x in loader:
        scaler.scale(sum(model(x).mean() for model in models)).backward()
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        for model in models:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()


def two_steps(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cpu")
    for x in loader:
        for part in x:
            optimizer.zero_grad()
            scaler.scale(model(part).mean()).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
