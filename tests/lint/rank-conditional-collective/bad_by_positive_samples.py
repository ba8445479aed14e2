import torch

from project.core import reduce_mean


def loss_of(scores, labels, loss_fn):
    positive = torch.nonzero((labels >= 0) & (labels < 80), as_tuple=False).squeeze(1)
    if len(positive) > 0:
        factor = reduce_mean(scores[positive].sum())  # expect: rank-conditional-collective
        return loss_fn(scores[positive]) / factor
    return scores.sum() * 0
