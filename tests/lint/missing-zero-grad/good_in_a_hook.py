import torch
from mine import tidy


def by_a_lambda(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda its, args, kwargs: its.zero_grad())
    for x in loader:
        model(x).backward()
        optimizer.step()


def by_another_file(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(tidy)
    for x in loader:
        model(x).backward()
        optimizer.step()
