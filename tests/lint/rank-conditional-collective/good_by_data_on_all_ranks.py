import torch

from project.core import reduce_mean, reduce_sum


def before(scores, labels, loss_fn):
    positive = torch.nonzero(labels >= 0).squeeze(1)
    factor = reduce_mean(scores[positive].sum())
    if len(positive) > 0:
        return loss_fn(scores[positive]) / factor
    return scores.sum() * 0


def on_both_sides(scores, labels, loss_fn):
    positive = torch.nonzero(labels >= 0).squeeze(1)
    if len(positive) > 0:
        return loss_fn(scores[positive]) / reduce_mean(scores[positive].sum())
    else:
        reduce_mean(scores.new_zeros(()))
        return scores.sum() * 0


def agreed(scores, labels, loss_fn):
    positive = reduce_sum(torch.where(labels >= 0, 1.0, 0.0).sum())
    if positive.sum() > 0:
        return loss_fn(scores) / reduce_mean(scores.sum())
    return scores.sum() * 0


def buckets(tensors):
    found = [t for t in tensors if t is not None]
    if len(found) > 0:
        return reduce_mean(torch.cat(found))
    return None
