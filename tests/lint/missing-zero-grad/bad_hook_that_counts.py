import torch


def count(optimizer, args, kwargs):
    print("stepped")


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(count)
    for x in loader:
        model(x).backward()
        optimizer.step()  # expect: missing-zero-grad
