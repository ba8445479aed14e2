import torch


def parse(losses, other):
    log = {name: value.mean() for name, value in losses.items()}
    loss = sum(log.values())
    log["loss"] = loss  # expect: graph-retained
    for name, value in other.items():
        other[name] = value.item()
    log["first"] = torch.mean(log["first"]).item()
    return loss, log
