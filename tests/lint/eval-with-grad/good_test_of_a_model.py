import torch


def test_model(model):
    out = model(torch.ones(2, 2))
    assert out.shape == (2, 1)
