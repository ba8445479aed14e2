import torch  # noqa: F401


def of_a_trainer(model, batch):
    metrics = {}
    chosen, nll_loss = model(batch)
    loss = chosen.mean() + nll_loss
    metrics["chosen"] = chosen.detach().mean()
    metrics["nll"] = nll_loss.cpu().mean()  # expect: graph-retained
    return loss, metrics


def of_a_criterion(model, sample):
    loss = model(sample).sum()
    log = {"loss": loss, "size": len(sample)}  # expect: graph-retained
    return loss, len(sample), log
