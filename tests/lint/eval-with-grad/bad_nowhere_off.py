import torch


def evaluate(model, batches):
    right = 0
    for x, y in batches:
        right += (torch.softmax(model(x), -1).argmax(-1) == y).sum().item()  # expect: eval-with-grad
    return right
