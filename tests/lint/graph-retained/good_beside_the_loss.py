import torch


def detached(model, batch):
    loss = model(batch).sum()
    log = {"loss": loss.detach(), "size": len(batch)}
    return loss, log


@torch.no_grad()
def without_gradients(model, batch):
    loss = model(batch).sum()
    return loss, {"loss": loss}


def validation_step(model, batch):
    loss = model(batch).sum()
    return loss, {"loss": loss}


def alone(model, batch):
    loss = model(batch).sum()
    return {"loss": loss}
