import torch


def parse(losses):
    log = {name: value.mean() for name, value in losses.items()}
    loss = sum(log.values())
    log["loss"] = loss
    for name, value in log.items():
        log[name] = value.item()
    return loss, log


def with_a_constant(loss, matched):
    loss_all = loss * 2
    log = {"loss": loss.item()}
    log["matched"] = loss.new_tensor(matched)
    log["zero"] = torch.zeros_like(loss_all)
    return loss_all, log
